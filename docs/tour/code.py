"""Lines of Python as HTML: coloured, numbered, every known name a link."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from itertools import pairwise

from pygments.lexers import PythonLexer
from pygments.token import STANDARD_TYPES

from docs.tour.links import links
from docs.tour.names import Place
from docs.tour.source import Text

Href = Callable[[Place], str | None]  # the address of a place, None where it has no page


def html_lines(source: Text, href: Href) -> list[str]:
    """Each line of a file, coloured, with links to where its names are defined."""
    spots: dict[int, list[tuple[int, int, str]]] = {}
    for (line, start, end), place in links(source).items():
        address = href(place)
        if address:
            spots.setdefault(line, []).append((start, end, address))
    coloured = _tokens(source.text)
    return [
        _line(tokens, sorted(spots.get(number, [])))
        for number, tokens in enumerate(coloured[: len(source.lines)], 1)
    ]


def _tokens(text: str) -> list[list[tuple[str, str]]]:
    """Of each line its stretches: the class of a colour, and the text."""
    found: list[list[tuple[str, str]]] = [[]]
    for kind, value in PythonLexer(stripnl=False).get_tokens(text):
        while kind not in STANDARD_TYPES:
            kind = kind.parent
        for i, piece in enumerate(value.split("\n")):
            if i:
                found.append([])
            if piece:
                found[-1].append((STANDARD_TYPES[kind], piece))
    return found


def _line(tokens: list[tuple[str, str]], spots: list[tuple[int, int, str]]) -> str:
    """A line's stretches, cut where a link begins or ends."""
    out, column = [], 0
    opening = {start: href for start, _, href in spots}
    closing = {end for _, end, _ in spots}
    cuts = sorted({*opening, *closing})
    for colour, text in tokens:
        inner = [c for c in cuts if column < c < column + len(text)]
        edges = [column, *inner, column + len(text)]
        for start, end in pairwise(edges):
            out.append("</a>" if start in closing else "")
            out.append(f'<a href="{escape(opening[start])}">' if start in opening else "")
            piece = escape(text[start - column : end - column], quote=False)
            out.append(f'<span class="{colour}">{piece}</span>' if colour else piece)
        column += len(text)
    out.append("</a>" if column in closing else "")
    return "".join(out)
