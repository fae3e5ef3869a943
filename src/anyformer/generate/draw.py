"""Tokens drawn from probabilities, by numbers that a seed, a sequence and a step give alone.

So a row's text does not depend on the rows beside it. Letters: B rows, V vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

AHEAD = 2**14  # numbers that are made at once, those of a step at least
BITS = 52


def uniform(seed: np.ndarray, sequence: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1) of a seed, a sequence and a step, arrays of uint64 that broadcast."""
    mixed = _mix(_mix(_mix(seed) ^ sequence) ^ step)
    return (mixed >> np.uint64(64 - BITS)).astype(np.float64) * 2.0**-BITS


def _mix(x: np.ndarray) -> np.ndarray:
    """A bijection of 64 bits in which every bit of x changes about half of the others'."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


class Numbers:
    """The random numbers of every step: of one seed, or, without one, of torch's random state."""

    def __init__(self, seed: int | None, rows: int, copies: int, device: torch.device):
        self.device = device
        if seed is None:
            self.seeds = torch.randint(2**63 - 1, (rows,)).numpy().astype(np.uint64)
        else:
            self.seeds = np.full(rows, seed % 2**64, np.uint64)
        self.sequences = (np.arange(rows) % copies).astype(np.uint64)
        self.first, self.block = 0, torch.empty(0)

    def at(self, step: int) -> Tensor:
        """A number for each row, (B,)."""
        if not self.first <= step < self.first + len(self.block):
            ahead = max(1, AHEAD // len(self.seeds))
            steps = np.arange(step, step + ahead, dtype=np.uint64)[:, None]
            made = torch.from_numpy(uniform(self.seeds, self.sequences, steps))
            self.first, self.block = step, made.to(self.device)  # (steps, B)
        return self.block[step - self.first]


def draw(chance: Tensor, number: Tensor) -> Tensor:
    """The token (B,) of probabilities (B, V) in whose share a number (B,) in [0, 1) falls."""
    total = chance.double().cumsum(-1)
    found = torch.searchsorted(total, (number * total[:, -1])[:, None], right=True)
    return found[:, 0].clamp(max=chance.shape[-1] - 1)
