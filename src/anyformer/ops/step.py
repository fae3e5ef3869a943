"""A decoding step's attention as one kernel: turned, remembered and attended.

What the map to q, k and v gives goes in, what the map out reads comes out. The new key and value
are written into a cache of a set size, at a position that only the device knows.
Letters: B batch, H heads, G key heads, D size of q and k, E size of v, L room of the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anyformer.ops.tiles import WIDEST


class Slots(NamedTuple):
    """Where one attention's keys and values are, and where the new ones belong."""

    keys: Tensor  # (B, G, L, D)
    values: Tensor  # (B, G, L, E)
    at: Tensor  # (1,): the new position
    live: int  # keys that there may be
    ring: bool = False  # the buffer holds a window alone, in any order
    keep: Tensor | None = None  # (B, live): keys that are seen, True for those to come


class Step:
    """How heads attend; `rows` are the most that will."""

    def __init__(
        self, heads: tuple[int, int], sizes: tuple[int, int], scale: float,
        window: int | None = None, pairs: bool = False, like: Tensor | None = None, rows: int = 64,
    ):  # fmt: skip
        assert max(sizes) <= WIDEST and heads[0] % heads[1] == 0, (heads, sizes)
        self.heads, self.sizes, self.scale = heads, sizes, scale
        self.window, self.pairs = window or 0, pairs
        device = None if like is None else like.device
        self.arrived = torch.zeros(rows * heads[1], dtype=torch.int32, device=device)

    def __call__(self, y: Tensor, slots: Slots, wave: tuple[Tensor, Tensor] | None) -> Tensor:
        """y (B, (H + G) D + G E) -> (B, H E); wave: cosines and sines (1 or B, turning / 2)."""
        assert y.shape[0] * self.heads[1] <= len(self.arrived), "more rows than were announced"
        flat = (
            [] if wave is None else [w.reshape(w.shape[0], -1).float().contiguous() for w in wave]
        )
        keep = [] if slots.keep is None else [slots.keep.view(torch.uint8)]
        half = 0 if wave is None else flat[0].shape[1]
        window = 0 if slots.ring else self.window
        facts = [
            *self.heads,
            *self.sizes,
            window,
            int(slots.ring),
            slots.live,
            half,
            int(self.pairs),
        ]
        state = [slots.keys, slots.values, self.arrived]
        return run_step(y.contiguous(), state, slots.at, flat, keep, facts, self.scale)


@torch.library.custom_op("anyformer::step", mutates_args=("state",))
def run_step(
    y: Tensor,
    state: list[Tensor],
    at: Tensor,
    wave: list[Tensor],
    keep: list[Tensor],
    facts: list[int],
    scale: float,
) -> Tensor:
    """Launch the kernel, which changes `state`: keys, values and counts of arrivals.

    `facts` are those of kernels.launch_step.Facts.
    """
    from anyformer.ops.kernels import launch_step as launch  # Triton is no dependency

    *sizes, window, ring, live, half, pairs = facts
    found = launch.Facts(*sizes, window, bool(ring), live, half, bool(pairs))
    keys, values, arrived = state
    return launch.run(y, (keys, values, at, arrived), (wave, keep), found, scale)


@run_step.register_fake
def _(
    y: Tensor,
    state: list[Tensor],
    at: Tensor,
    wave: list[Tensor],
    keep: list[Tensor],
    facts: list[int],
    scale: float,
) -> Tensor:
    return y.new_empty(y.shape[0], facts[0] * facts[3])
