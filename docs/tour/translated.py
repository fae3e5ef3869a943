"""Pages of the tour in other languages, and the page of the main path in each."""

from __future__ import annotations

from pathlib import Path

from docs.tour.language import ENGLISH, Words, languages, others, site, switcher, translated
from docs.tour.markdown import unspaced
from docs.tour.page import body, pages
from docs.tour.path import main_path
from docs.tour.source import MODULE
from docs.tour.words import TITLE, words

FENCE = "`" * 8
PAGE = """\
---
hide-toc: true
---
# {title}

{fence}{{raw}} html
{body}
{fence}
"""
MAIN = """\
---
hide-toc: true
---
# {title}

{fence}{{raw}} html
{switcher}
{fence}

{text}

{listed}

```{{toctree}}
:hidden:

{names}
```
"""


def write(root: Path) -> None:
    """Write the main path in every language, and all pages that are in another one than English."""
    _put(root, main_path().name, ENGLISH, main_page(ENGLISH))
    for code in others():
        _put(root, main_path().name, code, main_page(code))
        for name in translated(code):
            _put(root, name, code, page(name, words(code, name)))


def _put(root: Path, name: str, code: str, text: str) -> None:
    file = root / f"{site(name, code)}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def page(name: str, said: Words) -> str:
    """A page of the tour in Markdown, whose rows are HTML."""
    found = pages()[name]
    title = escaped(said.texts.get(TITLE) or found.title)
    return PAGE.format(title=title, fence=FENCE, body=body(found, said))


def main_page(code: str) -> str:
    """The page of the main path in Markdown: what it is, and its pages in order."""
    path = main_path()
    said = words(code, path.name)
    listed = [_item(name, said) for name in path.pages]
    tongues = [f"{languages()[c].name} </{site(path.name, c)}>" for c in others()]
    below = tongues if code == ENGLISH else translated(code)
    return MAIN.format(
        title=escaped(said.texts.get(TITLE, path.title)),
        fence=FENCE,
        switcher=switcher(path.name, said.language),
        text=_joined(said.texts.get(MODULE, path.text)),
        listed="\n".join(listed),
        names="\n".join(below),
    )


def _joined(text: str) -> str:
    """A paragraph whose lines are joined as its writing joins them."""
    found = ""
    for line in text.splitlines():
        found += line if not found or unspaced(found[-1] + line[:1]) else f"\n{line}"
    return found


def _item(name: str, said: Words) -> str:
    title = escaped(said.titles.get(name, pages()[name].title))
    time = said.language.minutes.format(pages()[name].minutes)
    return f"1. [{title}]({name}.md) · {time}"


def escaped(title: str) -> str:
    """A title that Markdown leaves as it is."""
    return title.replace("_", "\\_").replace("*", "\\*")
