"""Texts cut into lines, sentences or paragraphs by simple rules.

The parts put together are the text again. White space before a sentence belongs to it, so that a
tokenizer sees the word behind a space as in the whole text; line ends belong to what they end.
"""

from __future__ import annotations

import re
from itertools import pairwise

from anyformer.errors import DataError, known_or_raise

# A word of one capital (an initial) or one of these, before a full stop, ends no sentence.
SHORT = frozenset(
    "al approx art ca capt cf ch co col dept dr ed eds eq esp est etc fig figs gen gov hon inc jr "
    "lt ltd mr mrs ms mt no nos op p pp prof rep rev sec sen sgt sr st vol vols vs viz z.b usw bzw "
    "e.g i.e a.m p.m u.s u.k".split()
)
_LINE = re.compile(r"[^\n]*+\n++|[^\n]++")
_PARAGRAPH = re.compile(r"\n[^\S\n]*+\n\s*+")
# The end of a sentence: marks and closing signs, then white space and what may open the next one;
# or the full-width marks, which no space follows. Nothing is tried twice: time stays linear.
_STOP = re.compile(
    r"(?<![.!?…])(?P<mark>[.!?…]++)[\"'”’»)\]]*+(?=\s++[\"'“‘«(\[¿¡]*+[^\W_a-zà-ÿ])"
    r"|[。！？]++[」』”’）]*+"
    r"|\n[^\S\n]*+\n\s*+"
)
_WORD = re.compile(r"[^\s\"'“‘«(\[]*$")
LOOK = 24  # characters before a full stop that can hold an abbreviation


def split(text: str, kind: str) -> list[str]:
    """The parts of a text: "line", "sentence" or "paragraph"; none of them is empty."""
    cut = known_or_raise(kind, KINDS, "kind of segment", DataError)
    parts = KINDS[cut](text)
    return _joined(parts) if parts else []


def lines(text: str) -> list[str]:
    """Lines, each with its line end and the empty lines behind it."""
    return _LINE.findall(text)


def paragraphs(text: str) -> list[str]:
    """What empty lines stand between."""
    return _cut(text, [found.end() for found in _PARAGRAPH.finditer(text)])


def sentences(text: str) -> list[str]:
    """Sentences: to a full stop, question or exclamation mark, or an empty line."""
    ends = [found.end() for found in _STOP.finditer(text) if _ends(text, found)]
    return _cut(text, ends)


def _ends(text: str, found: re.Match[str]) -> bool:
    """Whether a mark ends a sentence: not behind an abbreviation or an initial."""
    if found["mark"] != ".":
        return True
    at = found.start()
    before = _WORD.search(text[max(at - LOOK, 0) : at])
    word = before[0] if before else ""
    return not (word.lower() in SHORT or (len(word) == 1 and word.isupper() and word != "I"))


def _cut(text: str, ends: list[int]) -> list[str]:
    places = [0, *ends, len(text)]
    return [text[a:b] for a, b in pairwise(places) if b > a]


def _joined(parts: list[str]) -> list[str]:
    """White space alone is no part: it goes to the one before it, or to the first one."""
    found: list[str] = []
    held: list[str] = []
    solid = False
    for part in parts:
        blank = part.isspace()
        if solid and not blank:
            found.append("".join(held))
            held = []
        held.append(part)
        solid = solid or not blank
    return [*found, "".join(held)]


KINDS = {"line": lines, "sentence": sentences, "paragraph": paragraphs}
