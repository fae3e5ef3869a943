"""From tensors to the kernel of a norm's gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels import launch_sums, normed

ROWS, NUMBERS = 1, 8  # that a program reads at once, and how many of them a thread has
STAGES = 3  # rows that are on their way, with the one at work
PROGRAMS = 4  # for each multiprocessor, which share all rows
MOST = 16  # warps of a program


class Shape(NamedTuple):
    """What the kernel is compiled for."""

    R: int
    C: int
    CENTRED: bool
    LOW: bool
    SUMS: bool
    STAGES: int


class Given(NamedTuple):
    """A norm as it was: its input, mean and one over its deviation, and its weight."""

    x: Tensor
    mean: Tensor
    root: Tensor
    weight: Tensor


def backward(
    given: Given, grad: Tensor, kept: Tensor, centred: bool, low: torch.dtype, sums: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of x (..., F), it in `low` if that is another type, and sums (4 or 2, F)."""
    x = given.x
    site = launch_sums.Site(x.numel() // x.shape[-1], x.shape[-1])
    many = min(-(-site.rows // ROWS), PROGRAMS * launch_sums.processors(x))
    out = torch.empty_like(x)
    other = x.new_empty(x.shape if low != x.dtype else (0,), dtype=low)
    parts = x.new_empty(many, 4 if sums else 2, site.width, dtype=torch.float32)
    wide = 1 << (site.width - 1).bit_length()
    shape = Shape(ROWS, wide, centred, low != x.dtype, sums, STAGES)
    warps = min(max(ROWS * wide // (32 * NUMBERS), 1), MOST)
    written = (out, other, parts)
    launch_sums.start(normed.backward, (many,), warps, grad, kept, given, *written, site, shape)
    return out, other, launch_sums.columns(parts)
