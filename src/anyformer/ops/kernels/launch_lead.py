"""From tensors to the kernels that give persistent keys to what the library has done.

Letters: B batch, H heads, N tokens, D head size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import Size, power, start, view
from anyformer.ops.kernels.lead import both, slopes

PROGRAMS = 396  # that an H200 has room for: so many pass by queries at most, or one for each head
# By the widest head that they serve; the keys of a tile are as many as there are, or as here.
FORWARD = {128: Size(64, 64, 4, 1)}
BACKWARD = {64: Size(64, 64, 4, 1), 128: Size(32, 64, 8, 1)}

Part = tuple[Tensor, Tensor]  # output (B, H, N, D) and log-sum-exp (B, H, N) in units of 1


class Site(NamedTuple):
    """Numbers of one call."""

    queries: int
    heads: int
    lead: int
    rows: int  # queries that a program passes by
    scale: float


class Shape(NamedTuple):
    """What a kernel is compiled for."""

    M: int
    L: int
    D: int
    BD: int


class Work(NamedTuple):
    """q (B, H, N, D), and persistent keys and values (B, H, lead, D)."""

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float

    def site(self, rows: int) -> Site:
        """The numbers that kernels read."""
        return Site(self.q.shape[2], self.q.shape[1], self.k.shape[2], rows, self.scale)

    def shape(self, size: Size) -> Shape:
        """What a kernel is compiled for."""
        wide = self.q.shape[-1]
        return Shape(size.m, power(self.k.shape[2]), wide, power(wide))


def chosen(sizes: dict[int, Size], wide: int) -> Size:
    """The tiles for a head so wide."""
    return sizes[next(most for most in sizes if wide <= most)]


def merge(work: Work, part: Part, whole: Part) -> None:
    """Write the library's part with that of persistent keys to `whole`, perhaps the same place."""
    q, size = work.q, chosen(FORWARD, work.q.shape[-1])
    grid = (-(-q.shape[2] // size.m), q.shape[0] * q.shape[1])
    seen = lambda x: (view(x[0]), view(x[1][..., None]))
    given = (view(q), view(work.k), view(work.v), seen(part), seen(whole))
    start(both, grid, size, *given, work.site(size.m), work.shape(size))


def backward(work: Work, part: Part, grad: Tensor, dq: Tensor) -> Tensor:
    """Add to dq in place; gradients of persistent keys and values, (2, B, H, lead, D).

    `part` is the merged one.
    """
    q, size = work.q, chosen(BACKWARD, work.q.shape[-1])
    batch, heads, queries, wide = q.shape
    rows, shares = dealt(queries, size.m, batch * heads)
    kind = q.dtype if shares == 1 else torch.float32
    sums = q.new_empty(2, batch, heads * shares, work.k.shape[2], wide, dtype=kind)
    grads = (view(grad), view(part[0]), view(part[1][..., None]))
    start(
        slopes, (shares, batch * heads), size,
        view(q), view(work.k), view(work.v), grads, view(dq), (view(sums[0]), view(sums[1])),
        work.site(rows), work.shape(size),
    )  # fmt: skip
    if shares > 1:
        sums = sums.unflatten(2, (heads, shares)).sum(3).to(q.dtype)
    return sums


def dealt(queries: int, tile: int, heads: int) -> tuple[int, int]:
    """How many queries a program passes by, a multiple of a tile, and how many share a head."""
    tiles = -(-queries // tile)
    each = -(-tiles // max(1, min(tiles, PROGRAMS // heads)))
    return each * tile, -(-tiles // each)
