"""From tables and sums by distance to the kernels that lengthen the ones and fold the others."""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.ops.kernels.ends import CHUNK, PARTS, Shape, folded, longer, parted
from anyformer.ops.kernels.launch import tiles
from anyformer.ops.kernels.launch_sums import start
from anyformer.ops.kernels.tile import View

NUMBERS, ROWS, WARPS = 2048, 128, 4  # of a program, at most
SHARES = 4  # copies of a table's sums, to which programs add in turn


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


def in_parts(x: View, type: torch.dtype) -> View:
    """A bias (H, R, 1) of float32, in numbers of a type of 16 bits that add up to it, (H, R, 8)."""
    if not x.at.numel():
        return View(x.at, 0, 0, 1)
    heads, rows, _ = x.at.shape
    out = x.at.new_empty(heads, rows, PARTS.value, dtype=type)
    start(parted, (tiles(heads * rows, ROWS),), WARPS, x.at, out, heads * rows, ROWS)
    return View(out, 0, out.stride(0) if heads > 1 else 0, PARTS.value)


def sums_of(like: list[Tensor], heads: int, pad: int, wide: int, room: int) -> list[Tensor]:
    """Room for sums of a bias and of tables of vectors, (S, H, pad + rows + pad, 1 or wide), all 0.

    S shares where so many bytes are room for them; rows are made up to whole chunks.
    """
    # of a table that isn't there one chunk, so that all begin where sixteen bytes do
    long = [t.shape[1] + 2 * pad if t.numel() else 1 for t in like]
    rows = [-(-n // CHUNK.value) * CHUNK.value for n in long]
    widths = [1, *(wide for _ in like[1:])]
    counts = [heads * n * w for n, w in zip(rows, widths, strict=True)]
    shares = max(1, min(SHARES, room // (4 * max(counts))))
    zeros = like[0].new_zeros(shares * sum(counts), dtype=torch.float32)
    parts = zeros.split([shares * n for n in counts])
    return [x.view(shares, heads, -1, w) for x, w in zip(parts, widths, strict=True)]


def fold(slab: Tensor, like: Tensor, pad: int, type: torch.dtype | None = None) -> Tensor:
    """The gradient of a bias (H, R) or a table (H or 1, R, T) from its sums, as of sums_of.

    In a type, or else in that of the table.
    """
    out = torch.empty_like(like, dtype=type)
    if not like.numel():
        return out
    heads, rows, *wide = like.shape
    if heads < slab.shape[1]:
        slab = slab.sum((0, 1), keepdim=True)
    shape = _shape(wide[0] if wide else 1, slab.shape[-1], len(slab))
    start(folded, (tiles(rows, shape.N), heads), WARPS, slab, out, rows, pad, shape)
    return out


def _shape(wide: int, sums: int = 1, shares: int = 1) -> Shape:
    """What kernels are compiled for where rows have so many numbers, and those of sums."""
    block = 1 << (wide - 1).bit_length()
    return Shape(T=wide, W=sums, S=shares, N=min(ROWS, NUMBERS // block), BT=block)
