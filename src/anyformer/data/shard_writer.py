"""Writing token shards: into a folder beside the target, which takes its place in one step."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from anyformer.data.shards import DTYPES, FORMAT, MANIFEST, PLACE, VERSION
from anyformer.errors import DataError

SHARD = 1 << 28  # tokens after which the next document opens another shard
HELD = 1 << 20  # bytes of small entries that are kept before they are written
ROOM = 1 << 16  # ids that two bytes hold


class _File:
    """A file that counts and checksums what goes into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._stream = path.open("xb")
        self._sum = hashlib.sha256()
        self._held = bytearray()

    def add(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        self.bytes += len(data)
        self._held += data
        if len(self._held) >= HELD:
            self._flush()

    def _flush(self) -> None:
        self._sum.update(self._held)
        self._stream.write(self._held)
        self._held = bytearray()

    def done(self) -> dict[str, Any]:
        """Write it to the disk and return its entry in the manifest."""
        self._flush()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        return {"bytes": self.bytes, "sha256": self._sum.hexdigest()}

    def drop(self) -> None:
        """Close it, whatever became of it."""
        try:
            self._stream.close()
        except OSError:
            pass  # its last bytes don't fit either; the folder goes


class Writer:
    """Documents into the shards of a folder, piece by piece."""

    def __init__(
        self, folder: Path, vocabulary: int, segments: bool, names: bool, shard: int = SHARD
    ) -> None:
        self.dtype = "uint16" if vocabulary <= ROOM else "uint32"
        self.vocabulary = vocabulary
        self._folder, self._shard = folder, shard
        self._kinds = (
            "tokens",
            "documents",
            *["segments"] * segments,
            *["labels", "names"] * names,
        )
        self._files: dict[str, _File] = {}
        self._rows: list[dict[str, Any]] = []
        self._tokens = self._documents = 0  # of the shard that is open
        self.started = False  # whether the document under way has tokens

    def add(self, ids: np.ndarray, starts: np.ndarray | None = None) -> None:
        """More ids of the document that is under way, and where segments begin in them."""
        if not len(ids):
            return
        self._begin()
        if starts is not None and "segments" in self._files:
            self._files["segments"].add((starts + self._tokens).astype(PLACE).tobytes())
        self._files["tokens"].add(ids.astype(DTYPES[self.dtype], copy=False).tobytes())
        self._tokens += len(ids)

    def add_whole(self, ids: np.ndarray, lengths: np.ndarray, starts: np.ndarray | None) -> bool:
        """Many documents at once, none of them empty; False where that can't be done so.

        Not inside a document, not with names, and not where another shard begins.
        """
        if self.started or "names" in self._kinds or not len(lengths):
            return False
        if self._tokens + len(ids) >= self._shard:
            return False
        self.add(ids, starts)
        ends = np.cumsum(lengths) + (self._tokens - len(ids))
        self._files["documents"].add(ends.astype(PLACE).tobytes())
        self._documents += len(lengths)
        self.started = False
        return True

    def end(self, name: str | None = None) -> bool:
        """Close the document; one without tokens is left out, and False returned."""
        if not self.started:
            return False
        self.started = False
        self._documents += 1
        self._files["documents"].add(_place(self._tokens))
        if "names" in self._files:
            self._files["names"].add((name or "").encode("utf-8", "replace"))
            self._files["labels"].add(_place(self._files["names"].bytes))
        return True

    def _begin(self) -> None:
        if self.started:
            return
        if not self._files or self._tokens >= self._shard:
            self._close()
            stem = f"{len(self._rows):05}"
            self._files = {kind: _File(self._folder / f"{stem}.{kind}") for kind in self._kinds}
            for kind in {"documents", "labels"} & self._files.keys():
                self._files[kind].add(_place(0))
        self.started = True

    def _close(self) -> None:
        if not self._files:
            return
        if "segments" in self._files:
            self._files["segments"].add(_place(self._tokens))
        files = {file.path.name: file.done() for file in self._files.values()}
        self._rows.append({"tokens": self._tokens, "documents": self._documents, "files": files})
        self._files, self._tokens, self._documents = {}, 0, 0

    def finish(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Close the last shard and write the manifest."""
        self._close()
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "dtype": self.dtype,
            "vocabulary": self.vocabulary,
            "tokens": sum(row["tokens"] for row in self._rows),
            "documents": sum(row["documents"] for row in self._rows),
            **about,
            "shards": self._rows,
        }
        file = _File(self._folder / MANIFEST)
        file.add(json.dumps(manifest, indent=1, ensure_ascii=False).encode("utf-8", "replace"))
        file.done()
        return manifest

    def drop(self) -> None:
        """Close the files that are open."""
        for file in self._files.values():
            file.drop()


def _place(n: int) -> bytes:
    return n.to_bytes(8, "little")


@contextmanager
def replacing(target: Path, overwrite: bool = False) -> Iterator[Path]:
    """A new folder that takes the target's place if all goes well, and else leaves no trace."""
    if not overwrite:
        _check_free(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        work = target.parent / f".{target.name}.{socket.gethostname()}.{os.getpid()}.partial"
        work.mkdir()
    except OSError as problem:
        raise DataError(f"can't write {target}: {problem.strerror}") from problem
    try:
        yield work
        _sync(work)
        _swap(work, target, overwrite)
        _sync(target.parent)
    except OSError as problem:
        if problem.filename is None or Path(problem.filename).is_relative_to(work):
            raise DataError(
                f"can't write {target}: {problem.strerror}; nothing was left there: free some "
                "space or choose another folder"
            ) from problem
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _check_free(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        raise DataError(f"{target} is there already: choose another folder, or overwrite=True")


def _sweep(target: Path) -> None:
    """Remove what processes of this machine that were killed have left."""
    before = f".{target.name}.{socket.gethostname()}."
    for left in target.parent.glob(f".*{'.partial'}"):
        pid = left.name.removeprefix(before).removesuffix(".partial")
        if left.name.startswith(before) and pid.isdecimal() and not _alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _swap(work: Path, target: Path, overwrite: bool) -> None:
    if not overwrite or not target.exists() or not any(target.iterdir()):
        os.rename(work, target)
        return
    if not (target / MANIFEST).is_file():
        raise DataError(f"{target} holds something else than token shards: it is not overwritten")
    old = work.with_suffix(".old")
    os.rename(target, old)
    os.rename(work, target)
    shutil.rmtree(old, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Have the names of a folder on the disk, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
