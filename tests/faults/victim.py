"""A tiny run in processes of its own that are killed: by themselves at a file operation, or from
outside after a while. Children are forked from a process that has loaded torch.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.random  # noqa: F401  children find it loaded, and what torch loads at a first step
import torch
import torch._dynamo
import torch._inductor

import anyformer.train.run as runs
from anyformer.objectives import registry
from anyformer.train import hearing, parallel, ranks
from anyformer.train.settings import Evaluation, Saving
from tests.train.tiny import Numbers, TinyCausal, settings, spec

assert parallel and registry  # loaded once, for all children
CALLS = ("mkdir", "fsync", "replace", "rename", "unlink", "rmdir", "ftruncate")  # of os
OPEN, TIME = "open", "time"  # a file for writing; no operation, but a moment
LIMIT = 60.0  # seconds that an attempt may take
WAIT = 30.0  # that ranks wait for each other
SAMPLES = (Numbers(10, ragged=True), Numbers(6, seed=1))


class BrokenError(Exception):
    """A process that ended in another way than it should have."""


@dataclass(frozen=True)
class Point:
    """When a process is killed: at its `number`th call of an operation, or after `seconds`."""

    operation: str
    number: int = 0
    after: bool = False  # the call, or before it
    seconds: float = 0.0
    rank: int = 0
    all: bool = False  # all ranks, not this one alone

    @property
    def label(self) -> str:
        """What the table calls it."""
        place = "behind" if self.after else "before"
        return "at any time" if self.operation == TIME else f"{place} `{self.operation}`"


def work(folder: Path, world: int, again: bool) -> None:
    """Begin the run or go on with it."""
    chosen = settings(
        steps=10, batch=max(4, 2 * world), micro=2, ema=0.9, precision="bfloat16",
        saving=Saving(every=3, keep=2), evaluation=Evaluation(every=4, rows=6),
    )  # fmt: skip
    hearing.PATIENCE = 0.3
    with ranks.start(timeout=WAIT):
        if again:
            runs.resume(folder, SAMPLES)
        else:
            runs.train(spec(depth=1), SAMPLES, TinyCausal(), folder, chosen)


def watch(meet: Callable[[str, bool], None]) -> None:
    """Call `meet` before and after every operation that changes files."""

    def watched(name: str, inner: Any) -> Any:
        def outer(*given: Any, **options: Any) -> Any:
            meet(name, False)
            found = inner(*given, **options)
            meet(name, True)
            return found

        return outer

    for name in CALLS:
        setattr(os, name, watched(name, getattr(os, name)))
    plain, writing = io.open, watched(OPEN, io.open)

    def opened(file: Any, mode: str = "r", *given: Any, **options: Any) -> Any:
        return (plain if set(mode) <= set("rbt") else writing)(file, mode, *given, **options)

    io.open = builtins.open = opened


def die_at(point: Point) -> None:
    """Kill this process at a point."""
    met: Counter[bool] = Counter()

    def meet(name: str, after: bool) -> None:
        if name == point.operation:
            if met[after] == point.number and after == point.after:
                os.kill(os.getpid(), signal.SIGKILL)
            met[after] += 1

    watch(meet)


def counted(file: Path) -> Callable[[], None]:
    """Count operations; what is returned writes their numbers down."""
    met: Counter[str] = Counter()
    watch(lambda name, after: met.update([name] * after))
    return lambda: os.write(os.open(file, os.O_CREAT | os.O_WRONLY), json.dumps(met).encode())


def child(folder: Path, rank: int, world: int, again: bool, point: Point | None) -> None:
    """One process of the run; what it says goes to a file beside the run."""
    status = 1
    said = os.open(folder.with_suffix(f".said.{rank}"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(said, 2)  # what torch says in C++ too
    try:
        torch.set_num_threads(1)
        end = counted(folder.with_suffix(f".calls.{rank}")) if point is None else None
        if point is not None and point.operation != TIME and point.rank == rank:
            die_at(point)
        work(folder, world, again)
        if end is not None:
            end()
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)


def attempt(folder: Path, world: int, point: Point | None) -> bool:
    """Begin a run or go on with it; whether it was killed. Everything of it has ended then."""
    port, again = _port(), (folder / runs.RECORD).exists()
    begun, living, codes = time.monotonic(), {}, {}
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            if world > 1:
                os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": port}
                os.environ |= {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
            child(folder, rank, world, again, point)
        living[rank] = pid
    while living:
        passed = time.monotonic() - begun
        if point is not None and point.operation == TIME and passed >= point.seconds:
            _kill(living if point.all else {r: p for r, p in living.items() if r == point.rank})
        if point is not None and point.all and -signal.SIGKILL in codes.values():
            _kill(living)
        if passed > LIMIT:
            _kill(living)
            raise BrokenError(f"ranks {sorted(living)} hung")
        _reap(living, codes)
        time.sleep(0.002)
    killed = -signal.SIGKILL in codes.values()
    if any(code != 0 for code in codes.values()) and not killed:
        said = [folder.with_suffix(f".said.{r}").read_text() for r in sorted(codes)]
        raise BrokenError(f"ended with {codes}: {' | '.join(said)[:2000]}")
    return killed


def _reap(living: dict[int, int], codes: dict[int, int]) -> None:
    for rank, pid in list(living.items()):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            codes[rank] = os.waitstatus_to_exitcode(status)
            del living[rank]


def _kill(living: dict[int, int]) -> None:
    for pid in living.values():
        os.kill(pid, signal.SIGKILL)


def _port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])
