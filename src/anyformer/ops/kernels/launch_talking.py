"""From tensors to the kernels of heads that talk: strips of queries, one after the other."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from anyformer.ops.kernels import launch_strips
from anyformer.ops.kernels.launch import power, start, view
from anyformer.ops.kernels.launch_strips import Piece, kept, pieces, size_of
from anyformer.ops.kernels.strips import products, sums, turned
from anyformer.ops.kernels.talk import Talk
from anyformer.ops.kernels.talking import levels, meet, talk, talk_back
from anyformer.ops.kernels.tile import View


def multiplied(work: Talk, piece: Piece, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> None:
    """Fill s (B, H, R, W) of each (x, y, s) with x · y of a strip's queries and keys."""
    xs, ys, made = zip(*pairs, strict=True)
    widths = [x.shape[-1] for x in xs]
    size = work.size("products", max(widths))
    rows, heads, count, wide = piece.size
    run = work.run(size)
    blocks, runs = -(-count // size.m), -(-wide // (size.n * run)) * rows
    grid = (heads * len(pairs), blocks, runs)
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


def summed(work: Talk, piece: Piece, s: Tensor, pair: tuple[Tensor, Tensor], joins: Joins) -> None:
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
    for piece in parts:
        rows = lse[piece.rows, :, piece.queries, None]
        if piece.strip.keys:
            s = piece.within(room)
            multiplied(work, piece, [(q, work.k, s)])
            keep = kept(work.keep, piece.rows)
            given = (view(s), view(rows), some, work.mixes(), keep)
            if work.chunk:
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
    for piece in parts:
        s, du = (piece.within(x) for x in room)
        if piece.strip.keys:
            multiplied(work, piece, [(q, k, s), (grad, v, du)])
            level = view(lse[piece.rows, :, piece.queries, None])
            given, keep = (view(s), view(du), level, work.mixes()), kept(work.keep, piece.rows)
            given = (*given, tuple(map(view, made)), some, keep)
            if work.chunk:
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
