"""From tensors to the kernels that give persistent keys to what the library has done.

Letters: B batch, H heads, N tokens, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import Size, power, start, view
from anyformer.ops.kernels.lead import both, join, slopes

PROGRAMS = 396  # that an H200 has room for: so many pass by queries at most, or one for each head
# By the widest head that they serve; the keys of a tile are as many as there are, or as here.
FORWARD = {128: Size(64, 64, 4, 1)}
# With 64 queries and four warps Triton 3.6 makes wrong code of BACKWARD, seen on an H200.
BACKWARD = {64: Size(32, 64, 4, 1), 128: Size(32, 64, 8, 1)}
JOIN = {64: Size(128, 64, 4, 1), 128: Size(64, 64, 4, 1)}

Part = tuple[Tensor, Tensor]  # output (B, H, N, D) and log-sum-exp (B, H, N) in units of 1


class Site(NamedTuple):
    """Numbers of one call."""

    queries: int
    heads: int
    lead: int
    shares: int  # programs that pass by the queries of a head
    rows: int  # so many each
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

    def site(self, shares: int = 1, rows: int = 0) -> Site:
        """The numbers that kernels read."""
        return Site(self.q.shape[2], self.q.shape[1], self.k.shape[2], shares, rows, self.scale)

    def shape(self, size: Size) -> Shape:
        """What a kernel is compiled for."""
        wide = self.q.shape[-1]
        return Shape(size.m, power(self.k.shape[2]), wide, power(wide))

    def grid(self, size: Size) -> tuple[int, int]:
        """A program for each tile of queries."""
        batch, heads, queries, _ = self.q.shape
        return -(-queries // size.m), batch * heads


def chosen(sizes: dict[int, Size], wide: int) -> Size:
    """The tiles for a head so wide."""
    return sizes[next(most for most in sizes if wide <= most)]


def merge(work: Work, part: Part, whole: Part) -> None:
    """Write the library's part with that of persistent keys to `whole`, perhaps the same place."""
    q, size = work.q, chosen(FORWARD, work.q.shape[-1])
    seen = lambda x: (view(x[0]), view(x[1][..., None]))
    given = (view(q), view(work.k), view(work.v), seen(part), seen(whole))
    start(both, work.grid(size), size, *given, work.site(), work.shape(size))


def backward(work: Work, part: Part, grad: Tensor, dq: Tensor) -> tuple[Tensor, Site]:
    """Add to the library's dq in place; sums (2, B, H · shares, lead, D) of dk and dv for `fill`.

    `part` is the merged one.
    """
    q, size = work.q, chosen(BACKWARD, work.q.shape[-1])
    batch, heads, queries, wide = q.shape
    rows, shares = dealt(queries, size.m, batch * heads)
    site, room = work.site(shares, rows), (2, batch, heads * shares, work.k.shape[2], wide)
    sums = q.new_empty(room, dtype=torch.float32)
    grads = (view(grad), view(part[0]), view(part[1][..., None]))
    start(
        slopes, (shares, batch * heads), size,
        view(q), view(work.k), view(work.v), grads, view(dq), (view(sums[0]), view(sums[1])),
        site, work.shape(size),
    )  # fmt: skip
    return sums, site


def fill(
    work: Work, parts: Sequence[Tensor], made: tuple[Tensor, Site], grads: Sequence[Tensor]
) -> None:
    """Write the library's dk and dv, and what `backward` made, to those of all keys."""
    size, (sums, site) = chosen(JOIN, work.q.shape[-1]), made
    seen = lambda two: (view(two[0]), view(two[1]))
    start(join, work.grid(size), size, seen(parts), seen(sums), seen(grads), site, work.shape(size))


def dealt(queries: int, tile: int, heads: int) -> tuple[int, int]:
    """How many queries a program passes by, a multiple of a tile, and how many share a head."""
    tiles = -(-queries // tile)
    each = -(-tiles // max(1, min(tiles, PROGRAMS // heads)))
    return each * tile, -(-tiles // each)
