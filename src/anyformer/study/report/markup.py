"""HTML that is escaped unless it was made here: text from data and names can't become markup."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

# controls, lone surrogates, and marks that turn the direction of text
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)
_SIGNS = re.compile(" ([±=<]) ")
_VOID = frozenset({"meta", "br", "hr", "path", "line"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def clean(text: object) -> str:
    """The text without characters that XML forbids or that hide what is written."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", str(text))


def safe(text: object) -> Html:
    """The text as markup: escaped unless it is markup already."""
    return text if isinstance(text, Html) else Html(html.escape(clean(text)))


def tied(text: str) -> str:
    """The text with numbers kept on one line with the signs before them."""
    return _SIGNS.sub("\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", text)


def join(parts: Iterable[object], between: str = "") -> Html:
    """Parts one after another, each escaped unless it is markup already."""
    return Html(html.escape(between).join(safe(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element: class_ is written for class, role_ for role, data_tab for data-tab."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{safe(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{told}>") if name in ("meta", "br", "hr") else Html(f"<{name}{told}/>")
    return Html(f"<{name}{told}>{join(children)}</{name}>")


def folded(summary: str, *children: object) -> Html:
    """Something that opens when asked."""
    return tag("details", tag("summary", summary), *children)
