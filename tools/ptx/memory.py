"""Memory of a GPU: the tensors of a launch, at the addresses where they lie."""

from __future__ import annotations

import bisect
import ctypes
from typing import Any

import numpy as np
from torch import Tensor

from tools.ptx.faults import KernelError

Array = np.ndarray[Any, Any]
Part = tuple[Array, Array, Array]  # of an access: threads, a tensor's bytes, which they mean


class Global:
    """Reads and writes what tensors hold; an address beyond them is a fault."""

    def __init__(self, tensors: list[Tensor]):
        spans = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        self.starts = sorted(start for start, size in spans.items() if size)
        self.views = [
            np.ctypeslib.as_array((ctypes.c_uint8 * spans[start]).from_address(start))
            for start in self.starts
        ]
        self.ends = [start + len(view) for start, view in zip(self.starts, self.views, strict=True)]

    def bytes(self, at: Array, size: int, mask: Any) -> tuple[Array, list[Part]]:
        """Which threads are meant, and by tensor what they mean of it."""
        who = np.arange(len(at)) if mask is True else np.nonzero(mask)[0]
        found = []
        left = who
        while len(left):
            first = int(at[left[0]])
            i, inside = bisect.bisect_right(self.starts, first) - 1, left[:0]
            if i >= 0:
                inside = left[(at[left] >= self.starts[i]) & (at[left] < self.ends[i])]
            if not len(inside) or int(at[inside].max()) + size > self.ends[i]:
                raise KernelError(f"thread {left[0]}: {size} bytes at {first:#x} lie in no tensor")
            if (at[inside] % size).any():
                raise KernelError(f"{size} bytes at an address that isn't a multiple of that")
            places = (at[inside] - self.starts[i])[:, None] + np.arange(size)
            found.append((inside, self.views[i], places))
            left = np.setdiff1d(left, inside, assume_unique=True)
        return who, found

    def load(self, at: Array, size: int, mask: Any) -> tuple[Array, Array]:
        """Threads, and the bytes (threads, size) that they read."""
        who, parts = self.bytes(at, size, mask)
        out = np.zeros((len(at), size), np.uint8)
        for threads, view, places in parts:
            out[threads] = view[places]
        return who, out[who]

    def store(self, at: Array, data: Array, mask: Any) -> None:
        """Write bytes (N, size); of threads that write to one place the last one stays."""
        _, parts = self.bytes(at, data.shape[1], mask)
        for threads, view, places in parts:
            view[places] = data[threads]

    def add(self, at: Array, values: Array, mask: Any) -> None:
        """Add numbers (N) where they belong, one thread after another."""
        _, parts = self.bytes(at, values.itemsize, mask)
        for threads, view, places in parts:
            whole = view[: len(view) // values.itemsize * values.itemsize].view(values.dtype)
            np.add.at(whole, places[:, 0] // values.itemsize, values[threads])
