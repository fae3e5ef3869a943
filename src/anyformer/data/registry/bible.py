"""Bibles of the pythonbible packages as verses; their modules are parsed, never run."""

from __future__ import annotations

import ast
import re
from collections import Counter

from anyformer.data.registry.library import parsed
from anyformer.errors import DataError

OTHER = re.compile(r"\\+(\d+):(\d+)\\+\s*")  # a verse's number in the numbering of most Bibles

Verses = dict[int, str]


def verses(content: bytes, name: str) -> Verses:
    """Verses by book * 1,000,000 + chapter * 1,000 + verse, each on one line."""
    tree = parsed(content.decode("utf-8"))
    calls = [node.value for node in tree.body if isinstance(node, ast.Assign)] if tree else []
    if len(calls) != 1 or not isinstance(calls[0], ast.Call) or len(calls[0].args) < 4:
        raise DataError(f"{name}: a text with the starts and ends of its verses is expected")
    text, starts, ends = (ast.literal_eval(argument) for argument in calls[0].args[1:4])
    escaped = text.replace("\\", "\\\\")  # offsets count the source as written, escapes and all
    if max(ends.values()) != len(escaped):
        raise DataError(
            f"{name}: its verses end at {max(ends.values())}, its text at {len(escaped)}"
        )
    return _renumbered({k: " ".join(escaped[starts[k] : ends[k]].split()) for k in starts})


def _renumbered(found: Verses) -> Verses:
    """Put verses that carry another number in its place, before the titles that stood there."""
    plain = {key: text for key, text in found.items() if not OTHER.match(text)}
    for key, text in found.items():
        mark = OTHER.match(text)
        if mark:
            chapter, verse = int(mark[1]), int(mark[2])
            plain[key // 1_000_000 * 1_000_000 + chapter * 1000 + verse] = text[mark.end() :]
    return {key: text for key, text in sorted(plain.items()) if text and "\\" not in text}


def aligned(first: Verses, second: Verses) -> dict[int, tuple[str, str]]:
    """Verses of both, of the chapters only that both divide into as many verses."""
    counts = [Counter(key // 1000 for key in verses) for verses in (first, second)]
    return {
        key: (text, second[key])
        for key, text in first.items()
        if key in second and counts[0][key // 1000] == counts[1][key // 1000]
    }
