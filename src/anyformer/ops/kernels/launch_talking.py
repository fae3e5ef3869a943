"""From tensors to the kernels of heads that talk: strips of queries, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from anyformer.ops.kernels import launch_strips
from anyformer.ops.kernels.launch import Facts, Size, power, start, view
from anyformer.ops.kernels.launch_strips import Piece, grain, kept, long_rows, pieces, size_of
from anyformer.ops.kernels.strips import Shape, products, sums, turned
from anyformer.ops.kernels.talking import levels, meet, talk, talk_back
from anyformer.ops.kernels.tile import INTERPRETED, View

RUN = 512  # keys of a program that multiplies
TILES = {  # queries or heads by keys, and how a kernel is compiled, for the least heads
    "products": Size(128, 64, 8, 2),
    "sums": Size(64, 64, 4, 4),
    "turned": Size(64, 128, 8, 3),
    "talk": Size(16, 128, 4, 3),
    "talk_back": Size(16, 128, 4, 3),
}
LONG = {  # where rows are long
    "products": Size(128, 128, 8, 3, registers=128),  # two programs to a processor
    "sums": Size(128, 64, 8, 4),
    "turned": Size(64, 128, 8, 4),
    "talk_back": Size(16, 128, 4, 3, registers=128),  # four
}
SLOTS = 264  # programs that sum at a time, two on each processor of an H200
SHARE = 8  # keys of a share of a row that is summed, at least, for each channel
CHUNK = 1024  # keys of a program that mixes, at least, where rows are long
CHUNKS = 8  # of a row, at most
WAITS = not INTERPRETED.value  # whether they wait for each other: the interpreter has one at a time


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

    @property
    def chunk(self) -> int:
        """Keys that a program which mixes has; 0: all."""
        return max(CHUNK, power(-(-self.k.shape[2] // CHUNKS))) if long_rows(self) else 0

    @property
    def waits(self) -> bool:
        """Whether programs of one query wait for each other."""
        return WAITS and self.chunk > 0

    def chunks(self, piece: Piece) -> int:
        """Programs that mix for each query."""
        return -(-piece.size[3] // self.chunk) if self.chunk else 1

    def shares(self, piece: Piece, size: Size, width: int) -> int:
        """Programs for each tile that is summed over keys."""
        rows, heads, count, wide = piece.size
        tiles = rows * heads * -(-count // size.m)
        most = min(SLOTS // tiles, wide // (SHARE * power(width)))
        return max(1, most) if self.chunk else 1

    def size(self, kernel: str, width: int) -> Size:
        """The tiles of a kernel for this type, and rows so wide or heads so many."""
        size = (TILES | LONG if long_rows(self) else TILES)[kernel]
        exact = self.q.dtype == torch.float32
        mixes = kernel.startswith("talk")
        more = power(self.q.shape[1]) // 16 if mixes else max(1, power(width) // 64)
        more *= 4 if exact and mixes else 2 if exact else 1
        least = 16 if mixes or exact else 32
        n = min(size.n, max(least, size.n // more))
        stages = 1 if exact else max(1, size.stages - more + 1)
        return size._replace(n=n, stages=stages, registers=0 if exact else size.registers)

    def shape(self, size: Size, *widths: int, adds: bool = False) -> Shape:
        """What a kernel with such tiles is compiled for, where rows are so wide."""
        f, wide, fine = self.facts, (*widths, *widths), grain(self)
        return Shape(
            M=size.m,
            N=size.n,
            D=wide[0],
            E=wide[1],
            BD=power(wide[0]),
            BE=power(wide[1]),
            A=power(self.q.shape[1]),
            block=fine.block,
            even=fine.even,
            causal=bool(f.causal),
            window=f.width > 0,
            pads=self.keep.numel() > 0,
            mix=self.mix.numel() > 0,
            remix=self.remix.numel() > 0,
            jobs=len(widths),
            adds=adds,
            chunk=self.chunk,
            parts=1 << ((self.k.shape[2] - 1) // self.chunk).bit_length() if self.chunk else 1,
            waits=self.waits,
        )

    def mixes(self) -> tuple[Tensor, Tensor]:
        """Both matrices; in place of one that isn't there the other, which isn't used so."""
        there = self.mix if self.mix.numel() else self.remix
        return there, self.remix if self.remix.numel() else there


def multiplied(work: Talk, piece: Piece, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> None:
    """Fill s (B, H, R, W) of each (x, y, s) with x · y of a strip's queries and keys."""
    xs, ys, made = zip(*pairs, strict=True)
    widths = [x.shape[-1] for x in xs]
    size = work.size("products", max(widths))
    rows, heads, count, wide = piece.size
    run = max(1, RUN // size.n)
    blocks, runs = -(-count // size.m), -(-wide // (size.n * run)) * rows
    grid = (heads * len(pairs), *((runs, blocks) if work.waits else (blocks, runs)))
    given = (
        tuple(view(piece.of(x, piece.queries)) for x in xs),
        tuple(view(piece.of(y, piece.keys)) for y in ys),
        tuple(map(view, made)),
    )
    start(products, grid, size, *given, piece.strip, work.shape(size, *widths), run)


def mixing(work: Talk, kernel: object, given: tuple, piece: Piece) -> None:
    """Launch a kernel that mixes: a program for each query of a strip and chunk of its keys."""
    back = kernel in (meet, talk_back)
    size = work.size("talk_back" if back else "talk", 16)
    grid = (piece.strip.queries, piece.size[0], work.chunks(piece))
    more = () if back else (min(size.n, 16 * size.warps),)
    start(kernel, grid, size, *given, piece.strip, work.shape(size, 16), *more)


def matrices(work: Talk, some: list[Piece], *shape: int) -> Tensor:
    """Zeros (B, R · C, …) for the queries of any strip and their chunks."""
    sizes = [(piece.size[0], piece.size[2] * work.chunks(piece)) for piece in some]
    rows, count = (max((size[i] for size in sizes), default=0) for i in (0, 1))
    return torch.zeros((rows, count, *shape), device=work.q.device)


def arrivals(work: Talk, some: list[Piece]) -> list[Tensor]:
    """Zeros for each strip: a number to take, and from place 4 on how many chunks have told."""
    sizes = [4 + prod((piece.size[0], piece.size[2])) if work.waits else 0 for piece in some]
    whole = [size + -size % 4 for size in sizes]  # so that all begin at 16 bytes
    return list(torch.zeros(sum(whole), dtype=torch.int32, device=work.q.device).split(whole))


class Joins:
    """Where shares of sums over keys lie until the last of a tile has come, and who has come."""

    def __init__(self, work: Talk, some: list[Piece], room: Tensor | None = None):
        self.room, self.ended = room, work.q.new_empty(0, dtype=torch.int32)
        if work.chunk:
            tiles = max((prod(piece.size[:3]) for piece in some), default=0)
            self.ended = torch.zeros(tiles, dtype=torch.int32, device=work.q.device)

    def apart(self, shares: int, like: Tensor) -> tuple[View, Tensor]:
        """Room for (S, B · H, R, D) in float32: what a strip needs no longer, or its own."""
        rows, heads, count, width = like.shape
        shape = (shares, rows * heads, count, width)
        if self.room is None:
            return view(torch.empty(shape, device=like.device)), self.ended
        return view(self.room.view(torch.float32)[: prod(shape)].view(shape)), self.ended


def summed(
    work: Talk, piece: Piece, s: Tensor, pair: tuple[Tensor, Tensor], joins: Joins
) -> None:
    """Fill a strip of pair[1] with the rows of pair[0], summed by s."""
    y, to = pair[0], piece.of(pair[1], piece.queries)
    size = work.size("sums", y.shape[-1])
    shares = work.shares(piece, size, y.shape[-1])
    grid = (-(-piece.strip.queries // size.m), to.shape[0] * to.shape[1], shares)
    apart = joins.apart(shares, to) if shares > 1 else (view(to), joins.ended)
    given = (view(s), view(piece.of(y, piece.keys)), view(to), apart)
    shape = work.shape(size, y.shape[-1])
    start(sums, grid, size, *given, piece.strip, shares, shape, shares > 1)


def forward(work: Talk) -> tuple[Tensor, Tensor]:
    """out (B, H, Q, E) and the log-sum-exp of each row, (B, H, Q), in units of log 2."""
    q, v = work.q, work.v
    batch, heads, queries, _ = q.shape
    out = q.new_empty(batch, queries, heads, v.shape[-1]).transpose(1, 2)
    lse = q.new_empty((batch, heads, queries), dtype=torch.float32)
    parts = list(pieces(work, 2 * launch_strips.ROOM))  # the backward pass has two buffers
    room = q.new_empty(size_of(parts))
    some, joins = view(matrices(work, parts, 1, power(heads))), Joins(work, parts)
    come = arrivals(work, parts)
    for at, piece in enumerate(parts):
        rows = lse[piece.rows, :, piece.queries, None]
        if piece.strip.keys:
            s = piece.within(room)
            multiplied(work, piece, [(q, work.k, s)])
            keep = kept(work.keep, piece.rows)
            given = (view(s), view(rows), some, work.mixes(), come[at], keep)
            if work.chunk and not work.waits:
                mixing(work, levels, given, piece)
            mixing(work, talk, given, piece)
            summed(work, piece, s, (v, out), joins)
        else:
            rows.fill_(float("inf"))
            piece.of(out, piece.queries).zero_()
    return out, lse


class Gradients:
    """Gradients of k and v: written at once, or summed in float32 for some batch rows at a time."""

    def __init__(self, work: Talk):
        self.work, self.made = work, [torch.empty_like(x) for x in (work.k, work.v)]
        self.sums: list[Tensor] = []

    def add(self, piece: Piece, slopes: list[Tensor], grad: Tensor) -> None:
        """What a strip's slopes of scores and its weights give."""
        work, xs = self.work, (self.work.q, grad)
        to = [x[piece.rows] for x in self.made]
        if piece.alone:
            for x in to:
                x[:, :, : piece.keys.start] = 0
                x[:, :, piece.keys.stop :] = 0
        else:
            to = self.summing(piece)
        if piece.strip.keys:
            widths = [x.shape[-1] for x in xs]
            size = work.size("turned", max(widths))
            grid = (to[0].shape[1] * len(to), -(-piece.strip.keys // size.n), to[0].shape[0])
            given = (
                tuple(map(view, slopes)),
                tuple(view(piece.of(x, piece.queries)) for x in xs),
                tuple(view(x[:, :, piece.keys]) for x in to),
            )
            shape = work.shape(size, *widths, adds=not piece.alone)
            start(turned, grid, size, *given, piece.strip, shape)
        if not piece.alone and piece.queries.stop == work.q.shape[2]:
            for x, total in zip(self.made, to, strict=True):
                x[piece.rows] = total

    def summing(self, piece: Piece) -> list[Tensor]:
        """Sums of some batch rows, from 0 on where a strip is their first."""
        if not self.sums:
            rows = [x[piece.rows] for x in self.made]
            self.sums = [torch.empty(x.shape, dtype=torch.float32, device=x.device) for x in rows]
        if piece.queries.start == 0:
            for x in self.sums:
                x.zero_()
        return self.sums


def backward(work: Talk, lse: Tensor, grad: Tensor) -> list[Tensor]:
    """The gradients of q, k, v, mix and remix; empty for a matrix that isn't there."""
    q, k, v = work.q, work.k, work.v
    dq, heads = torch.empty_like(q), power(q.shape[1])
    gradients, parts = Gradients(work), list(pieces(work))
    room = [q.new_empty(size_of(parts)) for _ in range(2)]
    asked = (work.mix, work.remix)
    joins = Joins(work, parts, room[0])  # the weights are of no use when sums are made
    made = [matrices(work, parts, heads, heads) for _ in range(2)]
    some = view(matrices(work, parts, 1, heads))
    come = arrivals(work, parts)
    for at, piece in enumerate(parts):
        s, du = (piece.within(x) for x in room)
        if piece.strip.keys:
            multiplied(work, piece, [(q, k, s), (grad, v, du)])
            level = view(lse[piece.rows, :, piece.queries, None])
            given, keep = (view(s), view(du), level, work.mixes()), kept(work.keep, piece.rows)
            given = (*given, tuple(map(view, made)), some, come[at], keep)
            if work.chunk and not work.waits:
                mixing(work, meet, given, piece)
            mixing(work, talk_back, given, piece)
        gradients.add(piece, [du, s], grad)
        if piece.strip.keys:
            summed(work, piece, du, (k, dq), joins)
        else:
            piece.of(dq, piece.queries).zero_()
    heads = q.shape[1]
    mixes = [
        m.sum((0, 1))[:heads, :heads].contiguous() if x.numel() else torch.empty_like(x)
        for m, x in zip(made, asked, strict=True)
    ]
    return [dq, *gradients.made, *mixes]
