"""Members of wheels and sdists, read into memory one by one; nothing is unpacked to disk."""

from __future__ import annotations

import fnmatch
import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from anyformer.errors import DataError

LARGEST = 64 * 1024**2  # bytes of a member
WHOLE = 512 * 1024**2  # bytes of an archive, unpacked
BLOCK = 1024**2
BROKEN = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError)


class _Capped(io.RawIOBase):
    """A stream that refuses to give more than a number of bytes."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, most: int, name: str) -> None:
        self.stream, self.left, self.name = stream, most, name

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = self.left + 1 if size < 0 else min(size, self.left + 1)
        block = self.stream.read(wanted)
        self.left -= len(block)
        if self.left < 0:
            raise DataError(f"{self.name}: refused, it unpacks to more than it may")
        return block


def members(
    source: Path | bytes, patterns: tuple[str, ...], largest: int = LARGEST, whole: int = WHOLE
) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the plain files of a zip or tar.gz that match a pattern.

    For a tar the pattern leaves out the top folder. Each pattern has to be found.
    """
    name = str(source) if isinstance(source, Path) else "an archive within an archive"
    file = source.open("rb") if isinstance(source, Path) else io.BytesIO(source)
    wanted = set(patterns)
    try:
        with file:
            walk = _zip if zipfile.is_zipfile(file) else _tar
            file.seek(0)
            for member, content in walk(file, patterns, largest, whole):
                wanted -= {pattern for pattern in wanted if fnmatch.fnmatchcase(member, pattern)}
                yield member, content
    except BROKEN as error:
        raise DataError(f"{name}: damaged or no archive ({error})") from error
    if wanted:
        raise DataError(f"{name}: has no {', '.join(sorted(wanted))}")


def _wanted(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _within(name: str) -> str:
    """The name of a member, refused if it leads out of its archive, though nothing is unpacked."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise DataError(f"{name!r}: refused, the name leads out of its archive")
    return name


def _zip(
    file: IO[bytes], patterns: tuple[str, ...], largest: int, whole: int
) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if not info.is_dir() and _wanted(_within(info.filename), patterns):
                with archive.open(info) as stream:  # the size that a header states may be a lie
                    yield info.filename, _Capped(stream, largest, info.filename).read()


def _tar(
    file: IO[bytes], patterns: tuple[str, ...], largest: int, whole: int
) -> Iterator[tuple[str, bytes]]:
    with gzip.open(file) as plain:
        capped = _Capped(plain, whole, "the archive")
        with tarfile.open(fileobj=capped, mode="r|") as archive:
            for info in archive:
                name = _within(info.name).partition("/")[2]
                if info.isreg() and _wanted(name, patterns):
                    if info.size > largest:
                        raise DataError(f"{name}: refused, it unpacks to more than it may")
                    stream = archive.extractfile(info)
                    yield name, stream.read() if stream else b""
        while capped.read(BLOCK):  # gzip checks its sum at the end
            pass


def unzipped(content: bytes, name: str, largest: int = LARGEST) -> bytes:
    """The content of a gzip file, refused when it is larger than it may be."""
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            return _Capped(stream, largest, name).read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name}: damaged gzip file ({error})") from error
