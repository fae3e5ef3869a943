"""Work done ahead in other processes, each piece with a time limit: compiling, above all.

What a process compiles is kept on disk, where the one that measures finds it. A piece that takes
longer than its limit, or whose process dies, is named, and the others go on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

Work = Callable[[Any], object]
START = 120.0  # seconds in which a process is ready: it imports torch


@dataclass
class _Worker:
    """A process that does one piece at a time, and when it should have answered."""

    process: BaseProcess
    wire: Connection
    piece: int | None  # None: it is starting
    until: float

    def give(self, number: int, piece: Any, limit: float) -> None:
        """Hand it a piece."""
        self.wire.send(piece)
        self.piece, self.until = number, time.monotonic() + limit

    def stop(self) -> None:
        """End its process at once."""
        self.process.kill()
        self.process.join()
        self.wire.close()


def ahead(
    work: Work, pieces: Sequence[Any], limit: float, workers: int | None = None
) -> dict[int, str]:
    """Do work(piece) for each; what wasn't done, by its number, and why.

    An exception of the work itself is not told: where it is measured it comes again.
    """
    left, failed = list(range(len(pieces)))[::-1], {}
    busy: list[_Worker] = []
    most = min(workers or os.cpu_count() or 1, len(pieces))
    while left or busy:
        while len(busy) < most and len([w for w in busy if w.piece is None]) < len(left):
            busy.append(_started(work))
        for worker in _answers(busy):
            ended = _why(worker, limit)
            if ended:
                number = worker.piece if worker.piece is not None else left.pop()
                failed[number] = ended
            if not ended and left:
                number = left.pop()
                worker.give(number, pieces[number], limit)
                continue
            worker.stop()
            busy.remove(worker)
    return failed


def _started(work: Work) -> _Worker:
    """A new process; spawned, since one with a GPU in use can't be forked."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours, None, time.monotonic() + START)


def _serve(work: Work, wire: Connection) -> None:
    """Say that it is ready, then do what comes, until its process is ended."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # processes are many already
    wire.send(None)
    while True:
        piece = wire.recv()
        try:
            work(piece)
        except Exception:  # told where it is measured
            pass
        wire.send(None)


def _answers(busy: list[_Worker]) -> list[_Worker]:
    """The workers that have answered, died, or are late, once there is one."""
    soonest = min(worker.until for worker in busy)
    spoken = wait([w.wire for w in busy], max(0.0, soonest - time.monotonic()))
    now = time.monotonic()
    return [w for w in busy if w.wire in spoken or now >= w.until]


def _why(worker: _Worker, limit: float) -> str:
    """Why a worker that was waited for hasn't done its piece; nothing where it has."""
    if not worker.wire.poll():
        return f"not done within {limit:.0f} s" if worker.piece is not None else "no process came"
    try:
        worker.wire.recv()
    except EOFError:
        return "its process died"
    return ""
