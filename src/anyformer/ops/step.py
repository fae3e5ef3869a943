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


class Facts(NamedTuple):
    """How many heads of which size attend, over which keys."""

    heads: int
    groups: int  # key heads
    size: int
    value_size: int
    window: int  # keys that are seen, the new one among them; 0: all
    ring: int  # 1: the buffer has room for the window alone
    live: int  # keys that there may be
    half: int  # channels that turn, of each half; 0: none
    pairs: int  # 1: neighbours turn, not halves


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
        flat = [w.reshape(len(w), -1).float().contiguous() for w in wave or ()]
        keep = [] if slots.keep is None else [slots.keep.view(torch.uint8)]
        facts = Facts(
            *self.heads,
            *self.sizes,
            window=0 if slots.ring else self.window,
            ring=int(slots.ring),
            live=slots.live,
            half=flat[0].shape[1] if flat else 0,
            pairs=int(self.pairs),
        )
        state = [slots.keys, slots.values, self.arrived]
        return run_step(y.contiguous(), state, slots.at, flat, keep, list(facts), self.scale)


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

    `facts` are those of Facts.
    """
    from anyformer.ops.kernels import launch_step  # Triton is no dependency

    keys, values, arrived = state
    return launch_step.run(y, (keys, values, at, arrived), (wave, keep), Facts(*facts), scale)


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
