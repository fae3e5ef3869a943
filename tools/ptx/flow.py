"""Which line the threads of a program take next.

They go together until a branch parts them. Then those go on that are the furthest behind, until
they have caught up with others, as the compiler lays ways out that part and meet again. Threads
that wait at a barrier sleep until all have come that it is for. N: threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.ptx.faults import KernelError

Array = np.ndarray[Any, Any]
Mask = Any  # True, or which threads take a step
NONE = -1  # the barrier of threads that are awake


class Flow:
    """The threads' ways through a kernel's lines."""

    def __init__(self, threads: int, end: int):
        self.threads, self.end = threads, end
        self.clear()

    def clear(self) -> None:
        """All are at the beginning."""
        self.line = 0
        self.active: Mask = True  # who takes that line
        self.lines: Array | None = None  # of each thread (N), where they aren't together
        self.barriers = np.full(self.threads, NONE, np.int64)

    def next(self) -> int:
        """The line to take; the end where all threads are there."""
        if self.lines is None:
            return self.line
        awake = np.where(self.barriers == NONE, self.lines, self.end)
        self.line = int(awake.min())
        asleep = self.barriers != NONE
        if self.line == self.end and asleep.any():
            self.line = int(self.lines[asleep].min()) - 1
            raise KernelError("a barrier that some threads don't reach")
        self.active = awake == self.line
        if self.active.all():
            self.lines, self.active = None, True
        return self.line

    def go(self, to: int | None, mask: Mask) -> None:
        """Those who took the line go on: of them, those of the mask to another one."""
        if self.lines is None and (to is None or mask is True or mask.all()):
            self.line = self.line + 1 if to is None else to
            return
        self._apart()[self.active] = self.line + 1
        if to is not None:
            self._apart()[mask] = to

    def wait(self, mask: Mask, barriers: Array, count: int) -> bool:
        """Threads sleep at their barriers (N); whether one has woken those it waited for."""
        self._apart()
        asleep = np.zeros(self.threads, bool) | mask
        self.barriers[asleep] = barriers[asleep]
        met = False
        for barrier in np.unique(barriers[asleep]):
            here = self.barriers == barrier
            if here.sum() > count:
                raise KernelError(f"a barrier for {count} threads, which more of them reach")
            if here.sum() == count:
                self.barriers[here] = NONE
                met = True
        return met

    def _apart(self) -> Array:
        if self.lines is None:
            self.lines = np.full(self.threads, self.line, np.int64)
        return self.lines
