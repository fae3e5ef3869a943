"""A random order of any size in no memory: where an index of an epoch leads.

A Feistel network over pairs of numbers is a permutation whatever its rounds compute; walking on
from results beyond the size keeps it one for any size (Black and Rogaway 2002).
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from typing import Any, cast

import numpy as np

ROUNDS = 6
WORD = 2**64 - 1


def mix(*numbers: int, state: int = 0) -> int:
    """64 bits that depend on every number given (the finalizer of SplitMix64, chained).

    `state` is what numbers before them gave.
    """
    for number in numbers:
        state = (state + 0x9E3779B97F4A7C15 + (number & WORD)) & WORD
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & WORD
        state ^= state >> 31
    return state


mixed = lru_cache(64)(mix)  # for numbers that come again, as those of an epoch


def generator(*numbers: int) -> np.random.Generator:
    """Random numbers that depend on the numbers given and on nothing else."""
    return np.random.Generator(np.random.Philox(key=mix(*numbers)))


class Late:
    """A generator that is made when it is first asked: many who are given one never do."""

    def __init__(self, *numbers: int):
        self._numbers = numbers
        self._made: np.random.Generator | None = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = generator(*self._numbers)
        return getattr(self._made, name)


def late(*numbers: int) -> np.random.Generator:
    """The generator of some numbers, as `generator` gives it, but made when it is first asked."""
    return cast(np.random.Generator, Late(*numbers))


def shuffled(index: int, size: int, key: int) -> int:
    """Where `index` of 0 … size-1 stands in the order that `key` gives: a permutation."""
    a = isqrt(size - 1) + 1
    b = -(-size // a)
    while True:
        left, right = index % a, index // a
        for round, state in enumerate(_rounds(key)):
            left, right = right, (left + mix(right, state=state)) % (b if round % 2 else a)
        index = left + a * right
        if index < size:
            return index


@lru_cache(64)
def _rounds(key: int) -> list[int]:
    """What the key and the number of each round give."""
    return [mix(key, round) for round in range(ROUNDS)]


def place(index: int, size: int, seed: int, shuffle: bool) -> tuple[int, int]:
    """The epoch of an index, and the place that it leads to in it."""
    epoch, within = divmod(index, size)
    return epoch, shuffled(within, size, mixed(seed, epoch)) if shuffle else within
