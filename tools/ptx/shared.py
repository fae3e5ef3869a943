"""Shared memory of a program, and who may see what in it.

Kept for each two bytes: in which phase they were written and read last, by which warps; a phase
ends where all threads meet. Another warp's access in the same phase, where one of the two writes,
is a race. Products read by themselves: what they take must have been handed over by a fence, and
must stay until they are done. Nobody reads what the program hasn't written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tools.ptx.faults import KernelError

Array = np.ndarray[Any, Any]
FIRST = 1024  # bytes ahead that belong to the system
CELL = 2


class Shared:
    """Bytes, and the last phases and warps that met them."""

    def __init__(self, own: int, more: int, threads: int):
        self.first = FIRST
        self.given = FIRST + -(-own // 16) * 16  # where what a launch asks for begins
        self.end = self.given + more
        cells = -(-self.end // 16) * 16 // CELL
        self.bytes = np.zeros(cells * CELL, np.uint8)
        self.warp = np.arange(threads, dtype=np.int64) // 32
        self.notes = [np.zeros(cells, np.int64) for _ in range(7)]
        self.wrote, self.writers, self.read, self.readers, *rest = self.notes  # phases, warps' bits
        self.at, self.busy, self.arriving = rest  # when written, and how much is under way
        self.known = np.zeros(cells * CELL, bool)  # bytes that somebody has written
        self.check = True
        self.clear()

    def clear(self) -> None:
        """As a program finds it: bytes that are no number in any type."""
        self.bytes[:] = 0xFF
        for x in self.notes:
            x[:] = 0
        self.known[:] = False
        self.phase, self.time, self.fenced = 1, 1, 0

    def meet(self) -> None:
        """All threads wait for one another."""
        self.phase += 1

    def fence(self) -> None:
        """What was written until now may be read by products."""
        self.fenced = self.time - 1

    # --------------------------------------------------------------- access

    def places(self, at: Array, size: int) -> tuple[Array, Array]:
        """Bytes (threads, size) and cells (threads, cells)."""
        if (at % size).any():
            raise _wrong(f"{size} bytes at an address that isn't a multiple of that")
        if len(at) and (at.min() < self.first or at.max() + size > self.end):
            wrong = at[(at < self.first) | (at + size > self.end)][0] - self.first
            raise _wrong(f"byte {wrong} of {self.end - self.first}")
        bytes = at[:, None] + np.arange(size)
        return bytes, bytes[:, ::CELL] // CELL if size >= CELL else bytes // CELL

    def load(self, at: Array, size: int, mask: Any) -> tuple[Array, Array]:
        """The threads that read, and the bytes (threads, size) that they read."""
        who = np.arange(len(at)) if mask is True else np.nonzero(mask)[0]
        bytes, cells = self.places(at[who], size)
        self.seen(cells, self.warp[who])
        self.ask(self.known[bytes])
        return who, self.bytes[bytes]

    def store(self, at: Array, data: Array, who: Array) -> None:
        """Write bytes (threads, size) of those threads."""
        bytes, cells = self.places(at[who], data.shape[1])
        self.store_at(bytes, cells, data, self.warp[who])

    def store_at(self, bytes: Array, cells: Array, data: Array, warps: Array) -> None:
        """The same, where places are known."""
        self.written(cells, warps)
        self.bytes[bytes], self.known[bytes] = data, True
        if self.check and not _alike(self.bytes[bytes], data):
            raise _wrong("written by two threads at once")

    def one(self, at: int, size: int) -> Array:
        """Bytes that one thread changes where they lie, which is no race with others that do."""
        bytes = self.places(np.array([at]), size)[0][0]
        self.ask(self.known[bytes])
        return self.bytes[bytes[0] : bytes[0] + size]

    def ask(self, known: Array) -> None:
        """Whether somebody has written all of what is read."""
        if self.check and not known.all():
            raise _wrong("read what nobody wrote")

    def seen(self, cells: Array, warps: Array) -> None:
        """Cells (threads, M) are read by warps (threads)."""
        if not self.check:
            return
        by = np.broadcast_to(warps[:, None], cells.shape)
        if self.arriving[cells].any():
            raise _wrong("read while copies are under way")
        if ((self.wrote[cells] == self.phase) & (self.writers[cells] != 1 << by)).any():
            raise _wrong("read what another warp wrote, with no barrier between")
        fresh = self.read[cells] != self.phase
        self.readers[cells[fresh]] = 0
        self.read[cells] = self.phase
        np.bitwise_or.at(self.readers, cells, 1 << by)

    def written(self, cells: Array, warps: Array) -> None:
        """Cells (threads, M) are written by warps (threads)."""
        if not self.check:
            return
        by = np.broadcast_to(warps[:, None], cells.shape)
        if self.busy[cells].any() or self.arriving[cells].any():
            raise _wrong("written while products or copies are under way")
        if ((self.wrote[cells] == self.phase) & (self.writers[cells] != 1 << by)).any():
            raise _wrong("written by two warps, with no barrier between")
        others = self.readers[cells] & ~(1 << by)
        if ((self.read[cells] == self.phase) & (others != 0)).any():
            raise _wrong("overwritten after another warp's read, with no barrier between")
        self.wrote[cells], self.at[cells], self.writers[cells] = self.phase, self.time, 0
        np.bitwise_or.at(self.writers, cells, 1 << by)
        self.time += 1

    def lent(self, cells: Array) -> None:
        """To a product of all warps, which reads them until it is done."""
        if not self.check:
            return
        if self.arriving[cells].any():
            raise _wrong("a product reads while copies are under way")
        if (self.at[cells] > self.fenced).any():
            raise _wrong("a product reads what no fence has handed over")
        if (self.wrote[cells] == self.phase).any():
            raise _wrong("a product reads what was written with no barrier between")
        self.ask(self.known.reshape(-1, CELL)[cells])
        np.add.at(self.busy, cells.ravel(), 1)

    def returned(self, cells: Array) -> None:
        """The product is done."""
        if self.check:
            np.subtract.at(self.busy, cells.ravel(), 1)

    def depart(self, at: Array, data: Array, warps: Array) -> Callable[[], None]:
        """Bytes are under way to their places; what lands them there."""
        bytes, cells = self.places(at, data.shape[1])
        self.written(cells, warps)
        self.wrote[cells] = 0
        np.add.at(self.arriving, cells.ravel(), 1)

        def land() -> None:
            np.subtract.at(self.arriving, cells.ravel(), 1)
            self.store_at(bytes, cells, data, warps)
            self.at[cells] = 0  # products see copies without a fence, as compilers count on

        return land


def _wrong(what: str) -> KernelError:
    return KernelError(f"shared memory: {what}")


def _alike(a: Array, b: Array) -> bool:
    """But for rounding: threads that hold the same sum may have added it up in other orders."""
    if (a == b).all():
        return True
    if a.shape[1] % 4:
        return False
    x, y = (np.ascontiguousarray(z).view(np.float32) for z in (a, b))
    whole = np.maximum(abs(x), abs(y)) < 1e-20  # what is so small is rather an integer
    close = np.isclose(x, y, rtol=1e-4, atol=1e-6, equal_nan=True) & ~whole
    return bool((close | (x.view(np.uint32) == y.view(np.uint32))).all())
