"""When ranks lose each other: each one leaves word of how it ended, so that others can name it."""

from __future__ import annotations

import re
import time
import traceback
from typing import Any

from anyformer.errors import AnyformerError, TrainError

LOST = re.compile(r"gloo|nccl|timed? ?out|connection (closed|reset|refused)|broken pipe", re.I)
PATIENCE = 3.0  # seconds for the word of others to come
LONGEST = 300  # characters of a word


def leave_word(store: Any, rank: int, error: BaseException) -> None:
    """Tell the other ranks why this one ends."""
    try:
        store.set(_key(rank), " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST])
    except RuntimeError:  # the first rank, which keeps the store, is gone
        return


def explained(store: Any, rank: int, size: int, error: Exception) -> Exception:
    """An error as it is, or, where ranks lost each other, one that names who is missing."""
    lost = isinstance(error, RuntimeError) and LOST.search(str(error))
    if not lost or isinstance(error, AnyformerError):
        return error
    others = [other for other in range(size) if other != rank]
    words = _heard(store, others)
    silent = [other for other in others if other not in words]
    told = [f"rank {other} ended with {word}" for other, word in words.items()]
    if silent:
        names = ", ".join(f"rank {other}" for other in silent)
        told.append(f"{names} says nothing: it hangs, or was stopped or killed")
    return TrainError(
        f"rank {rank} lost the others in {_where(error)}: {'; '.join(told)}. Look there first; "
        "resume goes on from the last checkpoint"
    )


def _heard(store: Any, others: list[int]) -> dict[int, str]:
    """The words that other ranks left, waited for a little."""
    found: dict[int, str] = {}
    until = time.monotonic() + PATIENCE
    while len(found) < len(others) and time.monotonic() < until:
        for other in others:
            try:
                if other not in found and store.check([_key(other)]):
                    found[other] = store.get(_key(other)).decode("utf-8", "replace")
            except RuntimeError:  # the store is gone with the first rank
                return found
        time.sleep(0.05)
    return found


def _key(rank: int) -> str:
    return f"rank {rank} ended"


def _where(error: BaseException) -> str:
    """The call in which ranks meet: torch's where it is in Python, else ours."""
    frames = traceback.extract_tb(error.__traceback__)
    torchs = [f.name for f in frames if "distributed_c10d" in f.filename]
    ours = [f.name for f in frames if "anyformer" in f.filename]
    return next(iter(torchs or reversed(ours)), "a step")
