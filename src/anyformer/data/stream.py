"""Bytes of a file as text, in chunks: decoded, counted, checksummed, with errors that say where."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from anyformer.errors import DataError

CHUNK = 1 << 18  # bytes that are read at a time
LONGEST = 1 << 27  # characters of one record: a line of JSON or CSV
SWELL, FREE = 200, 1 << 26  # a gzip file may grow so many fold, and to so many bytes in any case
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
Watch = Callable[[int], object]


class Counted:
    """A file's raw bytes, counted for progress and checksummed on the way."""

    def __init__(self, path: Path, watch: Watch | None = None) -> None:
        self.path, self.bytes = path, 0
        self._watch, self._sum = watch, hashlib.sha256()
        try:
            self._stream: IO[bytes] = path.open("rb")
        except OSError as problem:
            raise DataError(f"can't read {path}: {problem.strerror}") from problem

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        found = self._stream.read(size)
        self.bytes += len(found)
        self._sum.update(found)
        if self._watch and found:
            self._watch(len(found))
        return found

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def about(self) -> dict[str, Any]:
        """Path, size and checksum of what was read."""
        return {"path": str(self.path), "bytes": self.bytes, "sha256": self._sum.hexdigest()}


def chunks(source: Counted, encoding: str) -> Iterator[str]:
    """The text of a file in chunks, line ends as newlines, a mark of the encoding taken off."""
    decoder = io.IncrementalNewlineDecoder(_decoder(encoding), translate=True)
    fed, first = 0, True
    for data in _plain(source):
        if first:
            _check_mark(data, encoding, source.path)
        try:
            text = decoder.decode(data)
        except UnicodeDecodeError as problem:
            at = fed - (len(problem.object) - len(data)) + problem.start
            raise _wrong(source.path, encoding, at, problem) from problem
        fed += len(data)
        if "\0" in text:
            raise DataError(f"{source.path} holds NUL bytes: it is a binary file; give a text")
        yield text.removeprefix("\ufeff") if first else text
        first = False
    try:
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as problem:
        at = fed - len(problem.object) + problem.start
        raise _wrong(source.path, encoding, at, problem) from problem


def lines(source: Counted, encoding: str, longest: int = LONGEST) -> Iterator[str]:
    """The lines of a file without their ends; one that is too long raises."""
    held: list[str] = []
    size = number = 0
    for chunk in chunks(source, encoding):
        *whole, rest = chunk.split("\n")
        for line in whole:
            number += 1
            yield "".join((*held, line)) if held else line
            held, size = [], 0
        if rest:
            held.append(rest)
            size += len(rest)
        if size > longest:
            raise DataError(
                f"{source.path}:{number + 1}: a line of more than {longest} characters; a record "
                "must fit in memory: split it, or keep long documents in text files"
            )
    if held:
        yield "".join(held)


def _decoder(encoding: str) -> codecs.IncrementalDecoder:
    try:
        return codecs.getincrementaldecoder(encoding)()
    except LookupError as problem:
        raise DataError(
            f"encoding={encoding!r} is not known; utf-8, latin-1, cp1252 are"
        ) from problem


def _check_mark(data: bytes, encoding: str, path: Path) -> None:
    name = codecs.lookup(encoding).name
    for mark, meant in MARKS.items():
        if data.startswith(mark) and not name.startswith(("utf-16", "utf-32")):
            raise DataError(f"{path} begins with the mark of {meant}: pass encoding={meant!r}")


def _wrong(path: Path, encoding: str, at: int, problem: UnicodeDecodeError) -> DataError:
    byte = problem.object[problem.start : problem.start + 1]
    return DataError(
        f"{path} is not text in {encoding}: byte {at} is 0x{byte.hex()} ({problem.reason}); pass "
        'encoding="..." if it is text in another one, as latin-1 or cp1252'
    )


def _plain(source: Counted) -> Iterator[bytes]:
    """The bytes of a file, unpacked where its name ends in .gz."""
    if source.path.suffix != ".gz":
        while data := source.read(CHUNK):
            yield data
        return
    total = 0
    try:
        with gzip.GzipFile(fileobj=source, mode="rb") as packed:  # type: ignore[arg-type]
            while data := packed.read(CHUNK):
                total += len(data)
                if total > max(FREE, SWELL * source.bytes):
                    raise DataError(
                        f"{source.path} unpacks to more than {SWELL} times its size: unpack it "
                        "yourself if it is meant to"
                    )
                yield data
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise DataError(
            f"{source.path} is no whole gzip file: {problem}; pack or download it again"
        ) from problem
