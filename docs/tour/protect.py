"""What a translation must keep: code, formulas, links, pictures, numbers, headings and tables.

A catalogue writes inline code and formulas as they are, and `{{1}}` on a line of its own for the
first block of the English text (a fence or a displayed formula), `{{2}}` for the second. Words
inside of a picture or a formula's `\\text` are translated by a fence with the block's number:

    ```labels 2
    by distance -> 按距离
    ```
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from markdown_it.token import Token

from docs.tour.markdown import parser
from docs.tour.notes import NoteError

BLOCKS = ("fence", "math_block")
KEPT = ("code_inline", "math_inline", *BLOCKS)
COUNTED = {"heading_open": "heading", "tr_open": "row of a table", "list_item_open": "list item"}
NUMBER = re.compile(r"(?<![\w.])[0-9]+\.[0-9]{2,}")  # results and papers
READER = parser()
PLACE = re.compile(r"^\{\{([0-9]+)\}\}$", re.M)
LABELS = re.compile(r"^```labels ([0-9]+)\n(.*?)^```$", re.M | re.S)
SPOKEN = re.compile(r'(?<=\\text\{)[^{}]*|(?<=aria-label=")[^"]*|(?<=>)[^<]*(?=</text>)')


def items(text: str) -> Counter[str]:
    """What there is to keep, and how often each; words in pictures and formulas are left out."""
    return Counter(found for token in _tokens(_read(text)) for found in _kept(token))


def differences(source: str, translation: str) -> list[str]:
    """What a translation lost or added, in words."""
    ours, theirs = items(source), items(translation)
    lost = [f"lacks {_short(item)}" for item in (ours - theirs)]
    return lost + [f"has {_short(item)}, which the English has not" for item in (theirs - ours)]


def blocks(text: str) -> list[str]:
    """The fences and displayed formulas of a text, as they are written."""
    lines = text.splitlines()
    found = (t for t in _read(text) if t.type in BLOCKS and t.map)
    return ["\n".join(lines[t.map[0] : t.map[1]]).rstrip() for t in found if t.map]


def filled(translation: str, source: str) -> str:
    """A translation with the blocks of its source in their places."""
    there = blocks(source)
    text = LABELS.sub(lambda m: _labelled(_block(there, m[1]), m[2]), translation)
    return PLACE.sub(lambda m: _block(there, m[1]), text)


def emptied(source: str) -> str:
    """A source with its blocks as places, to be translated."""
    for number, block in enumerate(blocks(source), 1):
        source = source.replace(block, f"{{{{{number}}}}}", 1)
    return source


def prose(text: str) -> str:
    """What is left to read: no code, no formulas, no targets of links."""
    return "\n".join(t.content for t in _tokens(_read(text)) if t.type == "text")


@cache
def _read(text: str) -> list[Token]:
    return READER.parse(text)


def _tokens(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield from _tokens(token.children) if token.children else [token]


def _kept(token: Token) -> Iterator[str]:
    if token.type in KEPT:
        yield f"{token.type.partition('_')[0]} {SPOKEN.sub('', token.content.strip())}"
    if token.type == "link_open":
        yield f"link {token.attrs['href']}"
    if token.type in COUNTED:
        yield COUNTED[token.type]
    if token.type == "text":
        yield from (f"number {n}" for n in NUMBER.findall(token.content))


def _short(item: str) -> str:
    line = " ".join(item.split())
    return repr(line if len(line) < 70 else line[:66] + " …")


def _block(there: list[str], number: str) -> str:
    if not 1 <= int(number) <= len(there):
        raise NoteError(f"there is no block {number}: the English text has {len(there)}")
    return there[int(number) - 1]


def _labelled(block: str, labels: str) -> str:
    """A block whose words, and nothing else of it, are replaced."""
    named = dict(line.split(" -> ", 1) for line in labels.splitlines() if " -> " in line)
    unknown = sorted(set(named) - set(SPOKEN.findall(block)))
    if unknown:
        raise NoteError(f"nothing in the block is called {unknown[0]!r}")
    return SPOKEN.sub(lambda m: named.get(m[0], m[0]), block)
