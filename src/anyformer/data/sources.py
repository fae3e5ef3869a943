"""Documents from text files, JSON lines, CSV, Parquet, `datasets` and folders, as a stream.

A document comes in pieces of bounded length, cut before white space, whose tokens are put together
again: so a text file of any size, or one line of 100 MB, takes no more memory than a short one. A
record of JSON or CSV must fit in memory (stream.LONGEST).
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from anyformer.data import records, stream
from anyformer.errors import DataError, known_or_raise

PIECE = 1 << 18  # characters of a piece
SPLITS = ("file", "block", "line")
TEXT = (".txt", ".text", ".md", ".rst", ".tex", ".py", ".html", ".xml", ".log")
SUFFIXES = (*TEXT, *records.READERS)
SPACE = (" ", "\n", "\t")


class Piece(NamedTuple):
    """A part of a document; `last` ends it, and then its name or label stands."""

    text: str
    last: bool = True
    name: str | None = None


@dataclass(frozen=True)
class Options:
    """How files are read."""

    split: str = "file"  # a text file's documents: the file, blocks between empty lines, lines
    field: str = "text"  # of a record, that holds the text
    name: str | None = None  # the field that holds a record's label; a text file's is its name
    encoding: str = "utf-8"
    on_bad: str = "raise"  # or "skip": records that can't be read are counted and left out
    suffixes: tuple[str, ...] | None = None  # of the files to take from folders
    part: str | None = None  # of a saved DatasetDict, as train

    def __post_init__(self) -> None:
        known_or_raise(self.split, SPLITS, "split", DataError)
        known_or_raise(self.on_bad, ("raise", "skip"), "value of on_bad", DataError)


@dataclass
class Source:
    """Something to read documents from; `files` and `bad` are known once it has been read."""

    what: Any  # paths, or an iterable of texts or records
    options: Options = field(default_factory=Options)
    files: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    bad: int = 0  # records that were left out

    @property
    def named(self) -> bool:
        """Whether documents have names."""
        return self.options.name is not None

    @property
    def size(self) -> int | None:
        """The bytes of all files; None where it isn't known."""
        if not isinstance(self.what, list):
            return None
        return sum(path.stat().st_size for path in self.what if path.is_file())

    def pieces(self, watch: Callable[[int], object] | None = None) -> Iterator[Piece]:
        """Every document in order, in pieces; watch hears of bytes as they are read."""
        self.files, self.bad = [], 0
        if isinstance(self.what, list):
            for path in self.what:
                yield from self._of_file(path, watch or (lambda n: None))
        else:
            yield from self._of_rows(self.what, "the given texts", watch)

    def texts(self) -> Iterator[str]:
        """The pieces' texts alone, as the training of a tokenizer takes them."""
        return (piece.text for piece in self.pieces())

    def signature(self) -> list[Any]:
        """What tells a changed source from the same one without reading it."""
        if not isinstance(self.what, list):
            return [self.what if isinstance(self.what, str) else _mark(self.what)]
        stats = [(path, path.stat()) for path in self.what]
        return [[str(path.resolve()), s.st_size, s.st_mtime_ns] for path, s in stats]

    def about(self) -> dict[str, Any]:
        """What was read, for the manifest: files with checksums, options, records left out."""
        said = {k: v for k, v in vars(self.options).items() if v is not None}
        return {"files": self.files, "options": said, "left_out": self.bad}

    def _of_file(self, path: Path, watch: Callable[[int], object]) -> Iterator[Piece]:
        if path.is_dir():
            yield from self._of_rows(records.saved(path, self.options.part), str(path), watch)
            return
        kind = kind_of(path)
        if kind in records.READERS:
            watched = records.READERS[kind](path, self, watch)
            yield from self._of_records(watched)
            return
        raw = stream.Counted(path, watch)
        try:
            if path.stat().st_size == 0:
                if self.what == [path]:
                    raise DataError(f"{path} is empty: give a text")
            name = path.stem if self.named else None
            for piece in SPLITTERS[self.options.split](stream.chunks(raw, self.options.encoding)):
                yield piece._replace(name=name) if piece.last else piece
        finally:
            raw.close()
            self.files.append(raw.about())

    def _of_rows(
        self, rows: Iterable[Any], where: str, watch: Callable[[int], object] | None
    ) -> Iterator[Piece]:
        digest, size = hashlib.sha256(), 0
        for number, row in enumerate(rows, 1):
            pair = (f"{where}, number {number}", {"text": row} if isinstance(row, str) else row)
            for piece in self._of_records([pair], "text" if isinstance(row, str) else None):
                data = piece.text.encode("utf-8", "surrogatepass")
                digest.update(data)
                size += len(data)
                if watch:
                    watch(len(data))
                yield piece
        self.files.append({"path": where, "bytes": size, "sha256": digest.hexdigest()})

    def _of_records(
        self, rows: Iterable[tuple[str, Any]], column: str | None = None
    ) -> Iterator[Piece]:
        for where, row in rows:
            try:
                text = records.text_of(row, column or self.options.field, where)
                name = self.options.name and records.label_of(row, self.options.name, where)
            except DataError as problem:
                self.refuse(problem)
                continue
            if text.strip():
                yield from cut(text, name or None)

    def refuse(self, problem: DataError) -> None:
        """Count a record that can't be read, or raise its error."""
        if self.options.on_bad == "raise":
            raise problem
        self.bad += 1


def source(what: Any, **options: Any) -> Source:
    """A source of a path, several, a folder, a `datasets` object, or texts and records."""
    chosen = Options(**options)
    if isinstance(what, Source):
        return what
    if isinstance(what, str | os.PathLike):
        return Source(_paths([Path(what)], chosen), chosen)
    if isinstance(what, list | tuple) and what and all(map(_is_path, what)):
        return Source(_paths([Path(w) for w in what], chosen), chosen)
    if isinstance(what, Mapping) and "datasets" in sys.modules:
        return Source(records.chosen(what, chosen.part, "the DatasetDict"), chosen)
    if not isinstance(what, Iterable):
        raise DataError(f"{type(what).__name__} is no source of texts: give a path or texts")
    rows = list(what) if isinstance(what, list | tuple) else what
    return Source(rows if not isinstance(rows, list) else _Rows(rows), chosen)


def _is_path(one: Any) -> bool:
    """Whether an entry of a list is a path: a Path, or a text that names what is there."""
    if isinstance(one, str):
        return 0 < len(one) < 1024 and "\n" not in one and os.path.exists(one)
    return isinstance(one, os.PathLike)


class _Rows(tuple[Any, ...]):
    """Texts or records that are in memory."""

    def __new__(cls, rows: Iterable[Any]) -> _Rows:
        return super().__new__(cls, rows)


def kind_of(path: Path) -> str:
    """The suffix that says how a file is read, without .gz."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _paths(given: list[Path], options: Options) -> list[Path]:
    found: list[Path] = []
    for path in given:
        if path.is_dir() and not records.is_saved(path):
            found += _inside(path, options.suffixes or SUFFIXES)
        elif path.is_file() or path.is_dir():
            found.append(path)
        else:
            what = "is no ordinary file" if path.exists() else "is not there"
            raise DataError(f"{path} {what}: give a text file or a folder of them")
    return found


def _inside(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a folder and those below it, in order, hidden ones left out."""
    found: list[Path] = []
    others: set[str] = set()
    for root, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            path = Path(root, name)
            if name.startswith(".") or not path.is_file():
                continue
            if kind_of(path) in suffixes:
                found.append(path)
            else:
                others.add(kind_of(path) or "no suffix")
    if not found:
        seen = f"it has {', '.join(sorted(others)[:10])}" if others else "it is empty"
        raise DataError(
            f"{folder} has no files of {', '.join(suffixes)}: {seen}; suffixes= chooses others"
        )
    return sorted(found)


def cut(text: str, name: str | None = None) -> Iterator[Piece]:
    """A document in pieces."""
    start = 0
    while len(text) - start > PIECE:
        end = _before_space(text, start, start + PIECE)
        yield Piece(text[start:end], False)
        start = end
    yield Piece(text[start:], True, name)


def _before_space(text: str, start: int, stop: int) -> int:
    """The best place to cut a text: before a space between words, else before white space.

    Tokenizers cut before such a space too, so the ids of the pieces are those of the whole.
    """
    low, at = start + (stop - start) // 2, stop
    while (at := text.rfind(" ", low, at)) > low:
        if not text[at - 1].isspace() and not text[at + 1 : at + 2].isspace():
            return at
    for mark in ("\n", " ", "\t"):
        at = text.rfind(mark, low, stop)
        while at > start and text[at - 1] in SPACE:  # a run of white space stays together
            at -= 1
        if at > start:
            return at
    return stop


def _whole(chunks: Iterator[str]) -> Iterator[Piece]:
    """One document, cut as it comes."""
    held, some = "", False
    for chunk in chunks:
        held += chunk
        if len(held) > PIECE + stream.CHUNK:
            end = _before_space(held, 0, PIECE)
            yield Piece(held[:end], False)
            held, some = held[end:], True
    if some or held.strip():
        yield from cut(held)


def _lines(chunks: Iterator[str]) -> Iterator[Piece]:
    return _parts(chunks, "\n")


def _blocks(chunks: Iterator[str]) -> Iterator[Piece]:
    return _parts(chunks, "\n\n")


def _parts(chunks: Iterator[str], mark: str) -> Iterator[Piece]:
    """What stands between marks, each a document; blank ones are left out."""
    held, open_ = "", False  # open_: pieces of this document have gone out
    for chunk in chunks:
        held += chunk
        *whole, held = held.split(mark)
        for part in whole:
            if open_ or part.strip():
                yield from cut(part.rstrip("\n") if open_ else part.strip("\n"))
            open_ = False
        while len(held) > PIECE + stream.CHUNK:
            end = _before_space(held, 0, PIECE)
            yield Piece(held[:end], False)
            held, open_ = held[end:], True
    if open_ or held.strip():
        yield from cut(held.rstrip("\n") if open_ else held.strip("\n"))


SPLITTERS = {"file": _whole, "block": _blocks, "line": _lines}


def _mark(what: Any) -> str:
    """A digest of texts in memory, or the fingerprint that a `datasets` object keeps itself."""
    if isinstance(what, _Rows):
        return hashlib.sha256(repr(tuple(what)).encode("utf-8", "surrogatepass")).hexdigest()
    if found := records.fingerprint_of(what):
        return found
    raise DataError("texts that can be read once only can't be kept: prepare() them into a folder")
