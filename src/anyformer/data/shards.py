"""Token shards: a folder of memory-mapped ids, made once from texts, read at any place at once.

`shards.json` says what there is. Each shard has `00000.tokens` (ids, uint16 or uint32, little
endian) and `00000.documents` (uint64: where each document begins, and the end). Beside them, where
the source had them: `00000.segments` (uint64: where each segment begins, and the end),
`00000.names` (UTF-8) and `00000.labels` (uint64: where each document's name begins in it, and the
end). Nothing is unpickled, and nothing outside the folder is read.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from anyformer.errors import DataError

if TYPE_CHECKING:
    from anyformer.data.tokenizer import Tokenizer

MANIFEST, FORMAT, VERSION = "shards.json", "anyformer shards", 1
DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
PLACE = np.dtype("<u8")
SUFFIXES = {"tokens": None, "documents": PLACE, "segments": PLACE, "labels": PLACE, "names": None}
OPEN = 64  # shards that are mapped at a time: each file holds a descriptor


@final
class Shards:
    """Documents as ids, in stored order; open one with Shards.open(folder)."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self._held: OrderedDict[int, dict[str, np.ndarray]] = OrderedDict()
        rows = manifest["shards"]
        self._tokens = _ends([row["tokens"] for row in rows])
        self._documents = _ends([row["documents"] for row in rows])

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None, check: bool = False
    ) -> Shards:
        """The shards of a folder; with a tokenizer, only if they were made by it.

        check=True reads every byte and compares checksums; otherwise sizes are compared.
        """
        home = Path(folder)
        found = cls(home, read_manifest(home))
        for name, size in found.files():
            _check_size(home, name, size)
        if tokenizer is not None:
            found.require(tokenizer)
        if check:
            found.verify()
        return found

    @property
    def tokens(self) -> int:
        """The number of tokens of all documents."""
        return self._tokens[-1]

    @property
    def documents(self) -> int:
        """The number of documents."""
        return self._documents[-1]

    def __len__(self) -> int:
        return self.documents

    @property
    def vocabulary(self) -> int:
        """The number of ids of the tokenizer that made them."""
        return self.manifest["vocabulary"]

    @property
    def segmented(self) -> str | None:
        """How documents were cut into segments: line, sentence, paragraph or None."""
        return self.manifest["segments"]

    @property
    def end(self) -> str | None:
        """The role of the token that ends every document; None where nothing was put there."""
        return self.manifest["end"]

    @property
    def fingerprint(self) -> str:
        """A digest of the ids, their documents, segments and names, wherever the folder lies."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        sums = [
            sorted((k, v["sha256"]) for k, v in r["files"].items()) for r in self.manifest["shards"]
        ]
        made = [FORMAT, VERSION, self.manifest["tokenizer"], self.manifest["segments"], sums]
        return hashlib.sha256(json.dumps(made).encode()).hexdigest()

    def document(self, k: int) -> np.ndarray:
        """The ids of document k, int64."""
        shard, start, stop = self._place(k)
        return shard["tokens"][start:stop].astype(np.int64)

    def segments(self, k: int) -> list[np.ndarray]:
        """The ids of document k, segment by segment; the whole of it where none were made."""
        shard, start, stop = self._place(k)
        if self.segmented is None or start == stop:
            return [shard["tokens"][start:stop].astype(np.int64)]
        marks = shard["segments"]
        first, last = np.searchsorted(marks, (start, stop))
        cuts = [*marks[first:last].tolist(), stop]
        ids = shard["tokens"][start:stop].astype(np.int64)
        return [ids[a - start : b - start] for a, b in pairwise(cuts)]

    def names(self, k: int) -> str | None:
        """The name or label of document k, where its source gave one."""
        at, local = self._shard_of(k)
        shard = self._open(at)
        if "labels" not in shard:
            return None
        start, stop = (int(x) for x in shard["labels"][local : local + 2])
        return bytes(shard["names"][start:stop]).decode("utf-8") if stop > start else None

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each document, int64."""
        return self._lengths

    @cached_property
    def _lengths(self) -> np.ndarray:
        found = [np.diff(self._open(i)["documents"]).astype(np.int64) for i in range(self.shards)]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def slice(self, start: int, stop: int) -> np.ndarray:
        """The ids from start to stop, int64, of all documents behind each other."""
        if not 0 <= start <= stop <= self.tokens:
            raise IndexError(f"tokens {start} to {stop} of {self.tokens}")
        out, done = np.empty(stop - start, np.int64), 0
        at = bisect_right(self._tokens, start) - 1
        while done < len(out):
            local = start + done - self._tokens[at]
            part = self._open(at)["tokens"][local : local + len(out) - done]
            out[done : done + len(part)] = part
            done, at = done + len(part), at + 1
        return out

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.manifest["shards"])

    def require(self, tokenizer: Tokenizer) -> None:
        """Raise unless this tokenizer gives the ids that the shards hold."""
        if tokenizer_digest(tokenizer) != self.manifest["tokenizer"]:
            raise DataError(
                f"{self.folder} was made by another tokenizer ({self.vocabulary} ids; this one has "
                f"{len(tokenizer)}): prepare the texts again with this one"
            )

    def verify(self) -> None:
        """Read every file and raise where one is not as it was written."""
        for row in self.manifest["shards"]:
            for name, about in row["files"].items():
                if digest_of(self.folder / name) != about["sha256"]:
                    raise DataError(
                        f"{self.folder / name} has changed since it was written: its checksum "
                        "differs; prepare the texts again"
                    )

    def __reduce__(self) -> tuple[Any, ...]:
        return Shards, (self.folder, self.manifest)  # another process maps the files itself

    def __repr__(self) -> str:
        return f"Shards({str(self.folder)!r}, {self.documents} documents, {self.tokens} tokens)"

    def files(self) -> Iterator[tuple[str, int]]:
        """The name of each file, and its bytes."""
        for row in self.manifest["shards"]:
            for name, about in row["files"].items():
                yield name, about["bytes"]

    def _shard_of(self, k: int) -> tuple[int, int]:
        if not 0 <= k < self.documents:
            raise IndexError(f"document {k} of {self.documents}")
        at = bisect_right(self._documents, k) - 1
        return at, k - self._documents[at]

    def _place(self, k: int) -> tuple[dict[str, np.ndarray], int, int]:
        """The arrays of the shard that holds document k, and its place there."""
        at, local = self._shard_of(k)
        shard = self._open(at)
        start, stop = shard["documents"][local : local + 2]
        return shard, int(start), int(stop)

    def _open(self, at: int) -> dict[str, np.ndarray]:
        """The mapped arrays of a shard; those used last stay open."""
        if at in self._held:
            self._held.move_to_end(at)
            return self._held[at]
        found: dict[str, np.ndarray] = {}
        for name in self.manifest["shards"][at]["files"]:
            what = name.rpartition(".")[2]
            dtype = SUFFIXES[what] or (
                DTYPES[self.manifest["dtype"]] if what == "tokens" else np.dtype("u1")
            )
            found[what] = _mapped(self.folder / name, dtype)
        _check_places(self.folder, self.manifest["shards"][at], found)
        self._held[at] = found
        if len(self._held) > OPEN:
            self._held.popitem(last=False)
        return found


def read_manifest(folder: Path) -> dict[str, Any]:
    """The checked contents of shards.json."""
    file = folder / MANIFEST
    if not file.is_file():
        raise DataError(
            f"{folder} holds no token shards: it has no {MANIFEST}; make them with "
            "`anyformer data prepare`"
        )
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise DataError(f"{file} is not valid JSON: {problem}") from problem
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DataError(f"{file} does not describe token shards")
    if found.get("version") != VERSION:
        raise DataError(
            f"{file} is of version {found.get('version')!r}, this anyformer reads {VERSION}: "
            "prepare the texts again or use the anyformer that made it"
        )
    _check_manifest(file, found)
    return found


def _check_manifest(file: Path, found: dict[str, Any]) -> None:
    try:
        rows = found["shards"]
        fine = found["dtype"] in DTYPES and found.keys() >= {
            "tokenizer",
            "segments",
            "end",
            "source",
        }
        fine &= type(found["vocabulary"]) is int and isinstance(rows, list)
        for i, row in enumerate(rows):
            names = {f"{i:05}.{suffix}" for suffix in SUFFIXES}
            needed = {f"{i:05}.tokens", f"{i:05}.documents"}
            needed |= {f"{i:05}.segments"} if found["segments"] else set[str]()
            fine &= needed <= row["files"].keys() <= names
            counts = [row["tokens"], row["documents"], *(a["bytes"] for a in row["files"].values())]
            fine &= all(type(n) is int and n >= 0 for n in counts)
            fine &= all(isinstance(about["sha256"], str) for about in row["files"].values())
            width = DTYPES[found["dtype"]].itemsize
            fine &= row["files"][f"{i:05}.tokens"]["bytes"] == width * row["tokens"]
            fine &= row["files"][f"{i:05}.documents"]["bytes"] == 8 * (row["documents"] + 1)
    except (KeyError, TypeError, AttributeError) as problem:
        raise DataError(f"{file} is damaged: {problem!r}; prepare the texts again") from problem
    if not fine:
        raise DataError(
            f"{file} is damaged: its entries don't fit each other; prepare the texts again"
        )


def _check_size(folder: Path, name: str, size: int) -> None:
    file = folder / name
    if not file.is_file():
        raise DataError(f"{file} is missing: copy the whole folder, or prepare the texts again")
    if not file.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{file} leads out of its folder: copy the file itself there")
    if (found := file.stat().st_size) != size:
        raise DataError(
            f"{file} has {found} bytes, not {size}: it was cut off or changed; copy it again or "
            "prepare the texts again"
        )


def _check_places(folder: Path, row: dict[str, Any], found: dict[str, np.ndarray]) -> None:
    ends = {"documents": row["tokens"], "segments": row["tokens"]}
    if "names" in found:
        ends["labels"] = len(found["names"])
    for what, end in ends.items():
        if what in found and (
            not len(found[what]) or found[what][0] != 0 or found[what][-1] != end
        ):
            raise DataError(f"{folder}: the {what} of a shard are damaged; prepare the texts again")


def _mapped(file: Path, dtype: np.dtype) -> np.ndarray:
    if file.stat().st_size == 0:
        return np.zeros(0, dtype)
    return np.memmap(file, dtype, "r")


def _ends(counts: list[int]) -> list[int]:
    """0 and the running sums."""
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + count)
    return ends


def digest_of(file: Path) -> str:
    """The sha256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """A digest of what decides the ids of a text; roles, templates and decoders don't count."""
    loaded = tokenizer._loaded
    pipeline = json.loads(loaded.pipeline.to_str())
    kept = {k: pipeline.get(k) for k in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
    if loaded.kind and loaded.kind.prepare:
        kept["prepare"] = [loaded.kind.prepare, dict(loaded.options)]
    text = json.dumps([kept, loaded.size], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
