"""Links of Markdown pages: from places in the repository to places in the site."""

from __future__ import annotations

import posixpath
import re

FENCE = re.compile(r"^(\s*)(`{3,}|~{3,}|:{3,})", re.M)
LINK = re.compile(r"(?<!\\)(\]\()([^()\s]+)(\))")


class LinkError(ValueError):
    """A link that leads nowhere, with its page."""


def moved(text: str, page: str, places: dict[str, str]) -> str:
    """The text of a page of the repository with its links as they are in the site.

    `page` is the page's path in the repository, `places` leads from paths in the repository to
    paths in the site. What is no Markdown there is a file beside the pages, which a browser opens.
    """
    return "".join(
        part if code else LINK.sub(lambda m: m[1] + _target(m[2], page, places) + m[3], part)
        for code, part in _parts(text)
    )


def _parts(text: str) -> list[tuple[bool, str]]:
    """The text in stretches: whether it is a block of code, and what it says."""
    parts: list[tuple[bool, str]] = [(False, "")]
    fence = ""
    for line in text.splitlines(keepends=True):
        found = re.match(r"\s*(`{3,}|~{3,})", line)
        opens = bool(found) and not fence
        closes = bool(fence) and line.strip().startswith(fence) and not line.strip().strip(fence[0])
        if opens and found:
            fence = found[1]
            parts.append((True, ""))
        parts[-1] = (parts[-1][0], parts[-1][1] + line)
        if closes:
            fence = ""
            parts.append((False, ""))
    return parts


def _target(target: str, page: str, places: dict[str, str]) -> str:
    if re.match(r"[a-z][a-z0-9+.-]*:|#", target):
        return target
    path, mark, anchor = target.partition("#")
    found = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    if found not in places:
        raise LinkError(f"{page} links to {target}, which is no page of the site and no file of it")
    relative = posixpath.relpath(places[found], posixpath.dirname(places[page]) or ".")
    is_page = places[found].endswith((".md", ".png"))
    return (relative if is_page else f"beside:{relative}") + mark + anchor
