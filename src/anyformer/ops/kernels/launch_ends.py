"""From tables and sums by distance to the kernels that lengthen the ones and fold the others."""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.ops.kernels.ends import Shape, folded, longer
from anyformer.ops.kernels.launch import tiles
from anyformer.ops.kernels.launch_sums import start
from anyformer.ops.kernels.tile import View

NUMBERS, ROWS, WARPS = 2048, 128, 4  # of a program, at most


def lengthened(x: Tensor, pad: int, gain: float, top: Tensor | None = None) -> View:
    """A table (H or 1, R, T) by pad rows at both ends, which repeat, times gain.

    top: (H,), what is taken off before.
    """
    heads, rows, wide = x.shape
    if not x.numel():
        return View(x, 0, 0, wide)
    out = x.new_empty(heads, rows + 2 * pad, wide)
    shape = _shape(wide)
    start(
        longer, (tiles(rows + 2 * pad, shape.N), heads), WARPS,
        x, x if top is None else top, out, gain, rows, pad, shape, top is not None,
    )  # fmt: skip
    return View(out, 0, out.stride(0) if heads > 1 else 0, wide)


def fold(slab: Tensor, like: Tensor, pad: int) -> Tensor:
    """The gradient of a table (H or 1, R, T) from its sums (S, H, pad + R + pad, T)."""
    out = torch.empty_like(like)
    if not like.numel():
        return out
    wide = slab.shape[-1]
    heads, rows = len(like), slab.shape[2] - 2 * pad
    if heads < slab.shape[1]:
        slab = slab.sum((0, 1), keepdim=True)
    shape = _shape(wide)
    start(folded, (tiles(rows, shape.N), heads), WARPS, slab, out, len(slab), rows, pad, shape)
    return out


def _shape(wide: int) -> Shape:
    """What kernels are compiled for where rows have so many numbers."""
    block = 1 << (wide - 1).bit_length()
    return Shape(T=wide, N=min(ROWS, NUMBERS // block), BT=block)
