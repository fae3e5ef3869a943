"""Reading safetensors: the header first, then one tensor at a time, each into memory of its own.

Nothing is mapped into memory, so that a load needs room for the weights once, aligned as torch
aligns its own, and a file that changes or breaks meanwhile is an error instead of a crash.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from anyformer.errors import CheckpointError, known_or_raise
from anyformer.spec.strict import parsed

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
PLACES = {str(d).removeprefix("torch."): d for d in DTYPES.values() if d.is_floating_point}
HEADER = 100_000_000  # bytes that a header may have, as the format says
MOST = 50_000  # tensors that a file may name
AGAIN = "Download or save it again"
NOT_WEIGHTS = {
    b"version https://git-lfs": "is a Git LFS pointer, not the weights: run `git lfs pull`",
    b"<": "is a web page, not the weights: download it again",
}


@dataclass(frozen=True)
class Place:
    """Where weights go: dtype and device; None leaves them as the file has them, on the CPU."""

    dtype: torch.dtype | None = None
    device: torch.device = torch.device("cpu")

    def put(self, tensor: Tensor, what: str) -> Tensor:
        """A weight in its place, without holes in memory; one that is no finite number raises."""
        if not tensor.is_floating_point() or (tensor.itemsize == 1 and self.dtype is None):
            raise CheckpointError(
                f"{what} is stored as {tensor.dtype}, which no layer here computes with: "
                "give dtype='bfloat16' for float8; integers need a file that is not quantised"
            )
        placed = tensor.to(dtype=self.dtype or tensor.dtype).contiguous()
        if placed.untyped_storage().nbytes() != placed.nbytes:  # a part of a fused matrix
            placed = placed.clone()
        if not finite(placed):
            was = (
                "NaN or infinite numbers: the file is damaged or its training diverged. Download "
                "it again, or take an earlier checkpoint"
            )
            if finite(tensor):
                was = f"numbers beyond {placed.dtype}: choose dtype='bfloat16' or 'float32'"
            raise CheckpointError(f"{what} holds {was}")
        return placed.to(self.device)


def place(dtype: torch.dtype | str | None, device: torch.device | str | None) -> Place:
    """The place that a user names."""
    if isinstance(dtype, str):
        dtype = PLACES[known_or_raise(dtype, PLACES, "dtype", CheckpointError)]
    if dtype is not None and dtype not in PLACES.values():
        raise CheckpointError(f"dtype={dtype} can't hold weights; known: {', '.join(PLACES)}")
    try:
        return Place(dtype, torch.device(device or "cpu"))
    except RuntimeError as error:
        raise CheckpointError(f"unknown device {device!r}: {str(error).splitlines()[0]}") from error


def finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite: their sum says so, and only a bad sum is looked into."""
    if tensor.itemsize == 1:
        tensor = tensor.to(torch.float32)
    if tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32)).isfinite():
        return True
    return bool(tensor.isfinite().all())


class Piece(Protocol):
    """A tensor that is not read yet."""

    @property
    def file(self) -> Path:
        """The file that holds it."""
        ...

    @property
    def key(self) -> str:
        """Its name there."""
        ...

    @property
    def size(self) -> int:
        """Its bytes."""
        ...

    def meta(self) -> Tensor:
        """Its shape and dtype alone."""
        ...

    def read(self) -> Tensor:
        """Its numbers, in memory of their own."""
        ...


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies in a safetensors file."""

    file: Path
    key: str
    dtype: str
    shape: tuple[int, ...]
    start: int  # bytes from the start of the file
    size: int

    def meta(self) -> Tensor:
        """Its shape and dtype alone."""
        return torch.empty(self.shape, dtype=self._dtype(), device="meta")

    def read(self) -> Tensor:
        """Its numbers."""
        raw = torch.empty(self.size, dtype=torch.uint8)
        with self.file.open("rb", buffering=0) as file:
            file.seek(self.start)
            if self.size and _fill(file, raw) != self.size:
                raise CheckpointError(f"{self.file} ends inside {self.key!r}. {AGAIN}")
        return raw.view(self._dtype()).view(self.shape)

    def _dtype(self) -> torch.dtype:
        what = f"dtype of {self.key!r} in {self.file}:"
        return DTYPES[known_or_raise(self.dtype, DTYPES, what, CheckpointError)]


def _fill(file: BinaryIO, raw: Tensor) -> int:
    """Read bytes into a tensor; how many came."""
    view, done = memoryview(raw.numpy()), 0  # type: ignore[arg-type]
    while done < len(view):
        count = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            break
        done += count
    return done


class Stored(Mapping[str, Tensor]):
    """Tensors on disk by name; one is read each time that it is asked for."""

    def __init__(self, entries: Mapping[str, Piece]):
        self.entries = dict(entries)

    def __getitem__(self, key: str) -> Tensor:
        return self.entries[key].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def metas(self) -> dict[str, Tensor]:
        """All of them as shapes alone."""
        return {key: entry.meta() for key, entry in self.entries.items()}

    def source(self, key: str) -> str:
        """The file and the key of a tensor, for an error."""
        entry = self.entries[key]
        return f"{entry.file}: {entry.key!r}"


def entries_of(file: Path) -> dict[str, Entry]:
    """What a safetensors file holds, checked against its length; no tensor is read."""
    size = file.stat().st_size
    if size == 0:
        raise CheckpointError(f"{file} is empty. {AGAIN}")
    header, begin = _header(file, size)
    if len(header) > MOST:
        raise CheckpointError(f"{file} names {len(header):,} tensors, beyond {MOST:,}. {AGAIN}")
    found = {key: _entry(file, key, about, begin) for key, about in header.items()}
    end = max((e.start + e.size for e in found.values()), default=begin)
    if end != size:
        what = "cut short" if size < end else "longer than its header says"
        raise CheckpointError(f"{file} is {what}: {size:,} bytes, not {end:,}. {AGAIN}")
    try:
        with safe_open(file, framework="pt"):  # offsets, shapes and sizes agree
            return found
    except SafetensorError as error:
        raise CheckpointError(f"{file} is no sound safetensors file: {error}. {AGAIN}") from error


def _header(file: Path, size: int) -> tuple[dict[str, Any], int]:
    """The JSON at the start of a file, and where the numbers begin."""
    with file.open("rb") as opened:
        start = opened.read(32)
        for sign, meaning in NOT_WEIGHTS.items():
            if start.startswith(sign) and size < 1_000_000:
                raise CheckpointError(f"{file} {meaning}")
        length = int.from_bytes(start[:8], "little")
        if len(start) < 8 or length > min(HEADER, size - 8):
            raise CheckpointError(f"{file} is cut short or no safetensors file. {AGAIN}")
        opened.seek(8)
        text = opened.read(length)
    try:
        header = parsed(text.decode("utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file} has a broken header: {error}. {AGAIN}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{file} has a header that names no tensors. {AGAIN}")
    return {key: about for key, about in header.items() if key != "__metadata__"}, 8 + length


def _entry(file: Path, key: str, about: Any, begin: int) -> Entry:
    """An entry of the header, as far as it can be read by itself."""
    try:
        start, end = map(operator.index, about["data_offsets"])
        shape = tuple(map(operator.index, about["shape"]))
        entry = Entry(file, key, str(about["dtype"]), shape, begin + start, end - start)
    except (TypeError, KeyError, ValueError) as error:
        raise CheckpointError(f"{file}: the header says nothing of {key!r}. {AGAIN}") from error
    known = DTYPES.get(entry.dtype)
    wanted = entry.size if known is None else math.prod(shape) * known.itemsize
    if start < 0 or min(shape, default=0) < 0 or entry.size != wanted:
        raise CheckpointError(
            f"{file}: {key!r} of shape {shape} and dtype {entry.dtype} has {entry.size} bytes in "
            f"the header. {AGAIN}"
        )
    return entry
