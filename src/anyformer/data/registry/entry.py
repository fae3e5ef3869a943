"""What the registry knows of a data set: what is in it, where it comes from, and its licences."""

from __future__ import annotations

from dataclasses import dataclass

PYTHON = "PSF-2.0"  # the licence of Python and of all that ships with it
SPLITS = ("train", "validation", "test")

COLUMNS: dict[str, tuple[str, ...]] = {
    "text": ("name", "text"),
    "pairs": ("source", "target"),
    "classification": ("text", "label"),
    "regression": ("text", "label"),
    "token-classification": ("words", "tags"),
    "summarisation": ("source", "target"),
    "multiple-choice": ("context", "choices", "label"),
    "question-answering": ("id", "question", "context", "answers"),
    "images": ("image", "label"),
}
"""The columns that the records of a task have in every data set."""


@dataclass(frozen=True)
class Artefact:
    """A pinned file of a package index: its exact name, size in bytes and SHA-256."""

    project: str
    version: str
    file: str
    size: int
    sha256: str

    @property
    def kind(self) -> str:
        """The kind of the file: "wheel" or "sdist"."""
        return "wheel" if self.file.endswith(".whl") else "sdist"


@dataclass(frozen=True)
class Entry:
    """A data set of the registry; the first of its tasks is the one that `load` gives."""

    name: str
    title: str
    tasks: tuple[str, ...]
    reader: str
    licence: str = PYTHON
    data_licence: str = PYTHON
    language: str = "English"
    artefacts: tuple[Artefact, ...] = ()
    members: tuple[str, ...] = ()
    derived: bool = False
    note: str = ""
    splits: tuple[str, ...] = SPLITS

    @property
    def size(self) -> int:
        """The bytes to fetch, 0 for what ships with Python."""
        return sum(artefact.size for artefact in self.artefacts)
