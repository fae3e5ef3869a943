"""From tensors to the kernels of heads that talk: strips of queries, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import Facts, Size, power, start, view
from anyformer.ops.kernels.talking import (
    Shape,
    Strip,
    products,
    sums,
    talk,
    talk_back,
    turned,
)
from anyformer.ops.kernels.tile import View

ROOM = 1 << 26  # scores of a strip, of all heads: more room, more memory and fewer launches
ROWS = 128  # queries of a strip where there is room, in steps of 16
TILES = {  # queries or heads by keys, and how a kernel is compiled, for the least heads
    "products": Size(64, 128, 4, 1),
    "sums": Size(32, 64, 4, 3),
    "turned": Size(64, 64, 4, 2),
    "talk": Size(16, 256, 4, 2),
    "talk_back": Size(16, 128, 4, 2),
}


@dataclass(frozen=True, eq=False)
class Talk:
    """One call: q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E), mixes (H, H) and keys to keep."""

    q: Tensor
    k: Tensor
    v: Tensor
    mix: Tensor  # float32; empty: none
    remix: Tensor
    keep: Tensor  # (B or 1, K - lead) int8; empty: all
    scale: float
    facts: Facts

    def size(self, kernel: str, width: int) -> Size:
        """The tiles of a kernel for this type, and rows so wide or heads so many."""
        size, exact = TILES[kernel], self.q.dtype == torch.float32
        mixes = kernel.startswith("talk")
        more = power(self.q.shape[1]) // 16 if mixes else max(1, power(width) // 128)
        more *= 4 if exact and mixes else 2 if exact else 1
        least = 16 if mixes or exact else 32
        return Size(size.m, max(least, size.n // more), size.warps, 1 if exact else size.stages)

    def shape(self, size: Size, width: int) -> Shape:
        """What a kernel with such tiles is compiled for, where rows are so wide."""
        f = self.facts
        return Shape(
            M=size.m,
            N=size.n,
            D=width,
            BD=power(width),
            A=power(self.q.shape[1]),
            causal=bool(f.causal),
            window=f.width > 0,
            pads=self.keep.numel() > 0,
            mix=self.mix.numel() > 0,
            remix=self.remix.numel() > 0,
        )

    def mixes(self) -> tuple[Tensor, Tensor]:
        """Both matrices; in place of one that isn't there the other, which isn't used so."""
        there = self.mix if self.mix.numel() else self.remix
        return there, self.remix if self.remix.numel() else there


class Stripped(Protocol):
    """A call that runs in strips: q (B, H, Q, D), k (B, G, K, D) and its numbers."""

    @property
    def q(self) -> Tensor:
        """Queries."""
        ...

    @property
    def k(self) -> Tensor:
        """Keys."""
        ...

    @property
    def scale(self) -> float:
        """What scores are multiplied by."""
        ...

    @property
    def facts(self) -> Facts:
        """Where queries stand, and the mask."""
        ...


def kept(keep: Tensor, rows: slice) -> View:
    """Keys to keep of some batch rows."""
    keep = keep[rows] if keep.shape[0] > 1 else keep
    return View(keep, keep.stride(0) if keep.shape[0] > 1 else 0, 0, 1)


class Piece(NamedTuple):
    """Batch rows, queries and keys of a strip, and its numbers."""

    rows: slice
    queries: slice
    keys: slice
    strip: Strip

    def of(self, x: Tensor, axis: slice) -> Tensor:
        """The rows of x (B, H, N, D) that it has."""
        return x[self.rows, :, axis]


def step(work: Stripped) -> tuple[int, int]:
    """Batch rows and queries of a strip."""
    batch, heads, queries, _ = work.q.shape
    each = heads * work.k.shape[2]
    rows = max(1, min(batch, ROOM // (each * min(ROWS, queries))))
    return rows, max(16, min(queries, ROOM // (each * rows)) // 16 * 16)


def pieces(work: Stripped) -> Iterator[Piece]:
    """The strips of a call, in order; each has the keys that one of its queries may see."""
    (batch, heads, queries, _), keys = work.q.shape, work.k.shape[2]
    f, (rows, count) = work.facts, step(work)
    for row in range(0, batch, rows):
        for first in range(0, queries, count):
            last = min(first + count, queries)
            low, high = 0, keys
            if f.causal:
                high = min(high, f.lead + f.start + last)
            if f.width:
                high = min(high, f.lead + f.start + last - 1 + f.width)
                low = 0 if f.lead else max(0, f.start + first - f.width + 1)
            strip = Strip(
                queries=last - first,
                keys=max(high, low) - low,
                first=f.start + first,
                low=low - f.lead,
                width=f.width,
                heads=heads,
                group=heads // work.k.shape[1],
                scale=work.scale,
                channels=work.q.shape[3],
            )
            yield Piece(slice(row, row + rows), slice(first, last), slice(low, high), strip)


def product(work: Talk, piece: Piece, x: Tensor, y: Tensor, room: Tensor) -> Tensor:
    """x · y of a strip's queries and keys, (B, H, R, K), in a buffer."""
    x, y = piece.of(x, piece.queries), piece.of(y, piece.keys)
    batch, heads, count, width = x.shape
    keys = piece.strip.keys
    wide = keys + -keys % 16  # rows that begin where a GPU reads best
    s = room[: batch * heads * count * wide].view(batch, heads, count, wide)[..., :keys]
    size = work.size("products", width)
    grid = (-(-count // size.m), -(-keys // size.n), batch * heads)
    given = (view(x), view(y), view(s), piece.strip)
    start(products, grid, size, *given, work.shape(size, width))
    return s


def forward(work: Talk) -> tuple[Tensor, Tensor]:
    """out (B, H, Q, E) and the log-sum-exp of each row, (B, H, Q), in units of log 2."""
    q, v = work.q, work.v
    batch, heads, queries, _ = q.shape
    out = q.new_zeros(batch, queries, heads, v.shape[-1]).transpose(1, 2)
    lse = q.new_full((batch, heads, queries), float("inf"), dtype=torch.float32)
    room = q.new_empty(size_of(work))
    for piece in pieces(work):
        if piece.strip.keys:
            s = product(work, piece, q, work.k, room)
            rows = view(lse[piece.rows, :, piece.queries, None])
            keep = kept(work.keep, piece.rows)
            mixing(work, talk, (view(s), rows, work.mixes(), keep), piece)
            summed(work, piece, s, v, out)
    return out, lse


def size_of(work: Stripped) -> int:
    """Scores of the largest strip, with what fills up its rows."""
    (rows, count), keys = step(work), work.k.shape[2]
    return rows * work.q.shape[1] * count * (keys + -keys % 16)


def mixing(work: Talk, kernel: object, given: tuple, piece: Piece) -> None:
    """Launch a kernel that mixes: a program for each query of a strip."""
    name = "talk" if kernel is talk else "talk_back"
    rows, size = given[0].at.shape[0], work.size(name, 16)
    start(kernel, (piece.strip.queries, rows), size, *given, piece.strip, work.shape(size, 16))


def summed(work: Talk, piece: Piece, s: Tensor, y: Tensor, out: Tensor) -> None:
    """Fill a strip of out with the rows of y, summed by s."""
    size, to = work.size("sums", y.shape[-1]), piece.of(out, piece.queries)
    grid = (-(-piece.strip.queries // size.m), to.shape[0] * to.shape[1])
    given = (view(s), view(piece.of(y, piece.keys)), view(to))
    start(sums, grid, size, *given, piece.strip, work.shape(size, y.shape[-1]))


def backward(work: Talk, lse: Tensor, grad: Tensor) -> list[Tensor]:
    """The gradients of q, k, v, mix and remix; empty for a matrix that isn't there."""
    q, k, v = work.q, work.k, work.v
    dq = torch.zeros_like(q)
    dk, dv = (torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (k, v))
    room = [q.new_empty(size_of(work)) for _ in range(2)]
    rows, count = step(work)
    heads = power(q.shape[1])
    made = [
        torch.zeros((rows, count, heads, heads) if x.numel() else (1, 1, 1, 1), device=q.device)
        for x in (work.mix, work.remix)
    ]
    for piece in pieces(work):
        if piece.strip.keys:
            s = product(work, piece, q, k, room[0])
            du = product(work, piece, grad, v, room[1])
            level = view(lse[piece.rows, :, piece.queries, None])
            rest = (work.mixes(), tuple(map(view, made)), kept(work.keep, piece.rows))
            mixing(work, talk_back, (view(s), view(du), level, *rest), piece)
            summed(work, piece, du, k, dq)
            added(work, piece, s, grad, dv)
            added(work, piece, du, q, dk)
    count = q.shape[1]
    mixes = [
        m.sum((0, 1))[:count, :count].contiguous() if x.numel() else torch.empty_like(x)
        for m, x in zip(made, (work.mix, work.remix), strict=True)
    ]
    return [dq, dk.to(k.dtype), dv.to(v.dtype), *mixes]


def added(work: Talk, piece: Piece, s: Tensor, x: Tensor, total: Tensor) -> None:
    """Add to the keys of a strip the rows of x, summed by s turned round."""
    size, to = work.size("turned", x.shape[-1]), piece.of(total, piece.keys)
    grid = (-(-piece.strip.keys // size.n), to.shape[0] * to.shape[1])
    given = (view(s), view(piece.of(x, piece.queries)), view(to))
    start(turned, grid, size, *given, piece.strip, work.shape(size, x.shape[-1]))
