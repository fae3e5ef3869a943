"""From three gradients to the kernel that puts them side by side."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels import launch_sums, sides

ROWS, COLUMNS, WARPS = 16, 256, 4  # that a program reads at once
PROGRAMS = 6  # for each multiprocessor: as many as it has at a time


class Site(NamedTuple):
    """Numbers of one call."""

    rows: int
    width: int
    each: int  # rows of a program
    a: int
    b: int


class Shape(NamedTuple):
    """What the kernel is compiled for."""

    R: int
    C: int


def joined(grads: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Three gradients (..., width of each) side by side, and the sum of their rows in float32."""
    a, b, c = (g.shape[-1] for g in grads)
    first = grads[0]
    out = first.new_empty(*first.shape[:-1], a + b + c)
    rows, tiles = first.numel() // a, sum(-(-w // COLUMNS) for w in (a, b, c))
    each = -(-rows // max(1, PROGRAMS * launch_sums.processors(first) // tiles))
    site = Site(rows, a + b + c, each + -each % ROWS, a, b)
    parts = first.new_empty(-(-rows // site.each), site.width, dtype=torch.float32)
    shape, grid = Shape(ROWS, COLUMNS), (tiles, parts.shape[0])
    launch_sums.start(sides.joined, grid, WARPS, *grads, out, parts, site, shape)
    return out, launch_sums.columns(parts)
