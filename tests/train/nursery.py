"""Runs that are killed: one process loads torch once and forks a child for each attempt.

`python -m tests.train.nursery FOLDER KILLS SEED MODE` makes FOLDER/whole without a kill and
FOLDER/cut with so many, and prints how many kills hit. MODE is "time" (after a random while) or
"call" (at a random call that makes a file durable or gives it its name).
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy.random  # noqa: F401  children find it loaded, and what torch loads at a first step
import torch._dynamo
import torch._inductor  # noqa: F401

import anyformer.train.run as runs
from anyformer.train.settings import Evaluation, Saving
from tests.train.tiny import Numbers, TinyCausal, settings, spec

CALLS = ("fsync", "replace", "rename")


def work(folder: Path) -> None:
    """Begin the run or go on with it."""
    chosen = settings(
        steps=14,
        batch=4,
        micro=2,
        ema=0.9,
        precision="bfloat16",
        saving=Saving(every=3, keep=2),
        evaluation=Evaluation(every=4, rows=6),
    )
    samples = (Numbers(10, ragged=True), Numbers(6, seed=1))
    if (folder / runs.RECORD).exists():
        runs.resume(folder, samples)
    else:
        runs.train(spec(), samples, TinyCausal(), folder, chosen)


def die_at(call: int) -> None:
    """Kill this process at one of its calls."""
    left = [call]

    def watched(inner: Any) -> Any:
        def outer(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return inner(*args, **options)

        return outer

    for name in CALLS:
        setattr(os, name, watched(getattr(os, name)))


def attempt(folder: Path, after: float | None = None, call: int | None = None) -> bool:
    """Whether a child came to its end."""
    child = os.fork()
    if child == 0:
        sys.stderr = open(os.devnull, "w")
        if call is not None:
            die_at(call)
        try:
            work(folder)
        except BaseException as error:
            print("child:", repr(error), file=sys.stdout, flush=True)
            os._exit(1)
        os._exit(0)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert not (os.WIFEXITED(status) and os.WEXITSTATUS(status)), "the child failed by itself"
    return os.WIFEXITED(status)


def main(folder: str, kills: str, seed: str, mode: str) -> None:
    home, dice = Path(folder), random.Random(int(seed))
    start = time.perf_counter()
    assert attempt(home / "whole")
    passed, hit = time.perf_counter() - start, 0
    for _ in range(int(kills)):
        where = (
            {"after": dice.random() * passed} if mode == "time" else {"call": dice.randrange(60)}
        )
        hit += not attempt(home / "cut", **where)
    assert attempt(home / "cut")
    print(f"hit {hit}")


if __name__ == "__main__":
    main(*sys.argv[1:])
