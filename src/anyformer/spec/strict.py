"""JSON files, read strictly: an ordinary file of bounded size, in which no name stands twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from anyformer.errors import AnyformerError

MOST = 50_000_000  # bytes; an index of a hundred thousand tensors has ten million


def parsed(text: str) -> Any:
    """What a JSON text holds; a ValueError where it is none, or says something twice."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice[:200]!r} stands there twice")
    return found


def text_of(path: Path, error: type[AnyformerError]) -> str:
    """The text of an ordinary file that is not too large."""
    try:
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "no ordinary file"
            raise error(f"can't read {path}: it is {kind}; give a file")
        if path.stat().st_size > MOST:
            raise error(f"{path} has more than {MOST:,} bytes: give a file of text")
        return path.read_text("utf-8")
    except UnicodeDecodeError as problem:
        raise error(f"can't read {path}: it is not text in UTF-8; save it as such") from problem
    except OSError as problem:
        told = f"can't read {str(path)[:300]}: {problem.strerror}"
        raise error(f"{told}; give a file that is there") from problem


def read(path: Path, error: type[AnyformerError]) -> Any:
    """What a JSON file holds."""
    text = text_of(path, error)
    try:
        return parsed(text)
    except ValueError as problem:
        raise error(f"{path} is not valid JSON: {problem}; save or download it again") from problem
