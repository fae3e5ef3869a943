"""Records that take seconds to work out, kept as JSON lines until their sources change."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from anyformer.data.registry import library
from anyformer.data.registry.cache import folder
from anyformer.data.registry.entry import Entry
from anyformer.data.registry.readers import READERS
from anyformer.data.registry.split import split_of
from anyformer.errors import DataError

SLOW = {"docstrings", "choices", "questions", "kinds", "spans", "bibles"}


def records(entry: Entry, task: str, split: str) -> Iterator[dict[str, Any]]:
    """Records of one split, from where they are kept, else from their source."""
    if entry.reader in SLOW:
        try:
            kept = _kept(entry, task)
        except OSError:  # no room or no right to write: do without
            kept = None
        if kept:
            yield from _read(kept / f"{split}.jsonl")
            return
    for key, record in READERS[entry.reader](entry, task):
        if split_of(key) == split:
            yield record


def _read(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file} is damaged ({error}); delete {file.parent}, it is made anew"
        ) from error


def _kept(entry: Entry, task: str) -> Path:
    """The folder with a file for each split, made now if it isn't there; always whole."""
    parent = folder().parent / "records"
    target = parent / f"{entry.name}-{task}-{_fingerprint(entry)}"
    if target.is_dir():
        return target
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=parent) as name:
        making = Path(name) / "records"
        making.mkdir()
        with ExitStack() as stack:
            files = {
                split: stack.enter_context((making / f"{split}.jsonl").open("x", encoding="utf-8"))
                for split in entry.splits
            }
            for key, record in READERS[entry.reader](entry, task):
                files[split_of(key)].write(json.dumps(record) + "\n")
            for file in files.values():
                file.flush()
                os.fsync(file.fileno())
        try:
            os.rename(making, target)
        except OSError:
            if not target.is_dir():  # another process was first
                raise
    return target


def _fingerprint(entry: Entry) -> str:
    """A digest of the entry, of this code, and of the standard library where that is the source."""
    digest = hashlib.sha256(repr((entry, sys.version)).encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    if not entry.artefacts:
        for name, file in library.sources():
            state = file.stat()
            digest.update(f"{name} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
