"""BigBird's blocks (arXiv:2007.14062) as transformers draws them: which, and how often each counts.

In evaluation transformers draws nothing and puts the first block in the place of each drawn one,
so that its keys count several times in the softmax: their scores rise by the log of that number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from anyformer.ops.mask import Blocks, Drawn, Mask
from anyformer.ops.plan import Mod

OLD = (1024, 3072, 4096)  # padded lengths that follow the first plan
NEAR = 1024  # positions among which the first plan draws


@dataclass(frozen=True)
class Pattern:
    """Blocks of `size`, `random` of them drawn for each; the first plan is made for `longest`."""

    size: int
    random: int
    longest: int

    def sparse(self, length: int) -> bool:
        """Whether a row is long enough to leave anything out; else all see all."""
        return length > (5 + 2 * self.random) * self.size

    def blocks(self, length: int) -> Blocks:
        """The blocks that are seen always; the last one may be short."""
        return Blocks(self.size, -(-length // self.size))

    def first(self, length: int) -> tuple[Mask, tuple[Mod, ...]]:
        """What is seen where the first block stands for all drawn ones."""
        blocks, more = self.blocks(length), math.log1p(self.random)

        def raised(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            i = q // self.size
            repeated = (k // self.size == 0) & (i > 0) & (i < blocks.count - 1)
            return s + more * repeated.to(s.dtype)

        return blocks, (Mod(raised),) if self.random else ()

    def drawn(
        self, length: int, heads: int, seed: int, device: torch.device
    ) -> tuple[Mask, tuple[Mod, ...]]:
        """What is seen with blocks drawn from a seed."""
        if not self.random:
            return self.blocks(length), ()
        return _outside()(self, length, heads, seed, device)


def _outside() -> Callable[..., tuple[Mask, tuple[Mod, ...]]]:
    """The drawing, by numpy: a compiled graph breaks here, in training."""
    if not _LATE:
        _LATE.append(torch.compiler.disable(_drawn))  # type: ignore[arg-type]
    return _LATE[0]


_LATE: list[Callable[..., tuple[Mask, tuple[Mod, ...]]]] = []  # it loads torch's compiler


@lru_cache(maxsize=256)  # a mask for each layer and length
def _drawn(
    pattern: Pattern, length: int, heads: int, seed: int, device: torch.device
) -> tuple[Mask, tuple[Mod, ...]]:
    blocks = pattern.blocks(length)
    old = blocks.count * pattern.size in OLD
    later = lambda: later_plan(pattern, blocks.count, heads, seed)
    ids = first_plan(pattern, heads, seed)[:, : blocks.count] if old else later()
    ids[:, -1] = -1
    more = Drawn(pattern.size, torch.from_numpy(ids).to(device))

    def raised(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        times = blocks(b, h, q, k).int() + more.times(h, q, k)
        return s + times.clamp(min=1).to(s.dtype).log()

    return blocks | more, (Mod(raised),) if old else ()  # the later plan draws no block twice


def later_plan(pattern: Pattern, count: int, heads: int, seed: int) -> np.ndarray:
    """(H, blocks, R): for each block some of the first 2·R + 5, neither near nor at their ends."""
    rng, end = np.random.RandomState(seed), 2 * pattern.random + 5
    ids = np.full((heads, count, pattern.random), -1)
    for i in range(1, count):
        apart = {i - 1, i, i + 1, 0, end - 1}
        apart |= {end - 2} if i == 1 else set()
        apart |= {1} if i == end - 2 else set()
        for h in range(heads):
            found = [j for j in rng.permutation(end) if j not in apart]
            ids[h, i] = found[: pattern.random]
    return ids


def first_plan(pattern: Pattern, heads: int, seed: int) -> np.ndarray:
    """(H, blocks of the longest row, R): some of the first 1024 positions' blocks for each."""
    rng, count = np.random.RandomState(seed), pattern.longest // pattern.size
    ids = np.full((heads, count, pattern.random), -1)
    middle = np.arange(1, count - 1)
    last = NEAR // pattern.size - 1 if NEAR > 2 * pattern.size else count - 1
    for h in range(heads):
        for i in range(1, count - 1):
            found = rng.permutation(_choice(middle, i, count, last))[: pattern.random]
            ids[h, i, : len(found)] = found
    return ids


def _choice(middle: np.ndarray, i: int, count: int, last: int) -> np.ndarray:
    """The blocks among which the first plan draws for block i."""
    if i <= 2:
        return middle[i + 1 : last]
    if i >= count - 3 or i - 2 > last:
        return middle[:last]
    before = middle[: i - 2]
    return before if i + 1 == last else np.concatenate([before, middle[i + 1 : last]])
