"""From tensors to the kernels of slants: how wide buffers are, and in which strips they are filled.

Letters: B batch, H heads, G key heads, T width of a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import Size, Work, power, start, tiles, view
from anyformer.ops.kernels.slants import BLOCK, Shape, Slant, pull, slant
from anyformer.ops.kernels.tile import View

ROOM = 96 << 20  # bytes of the buffers of one strip
LEAST = 12288  # rows that keep a GPU busy: where fewer fit, tables go by diagonals
PROGRAMS = 1024  # that share the sums of a strip, at least
SUMS = {128: Size(64, 64, 4, 1), 256: Size(32, 32, 4, 1)}  # by the widest head, rows by distances
PULLS = dict(SUMS)
EXACT = Size(32, 32, 4, 1)  # of float32


class Strip(NamedTuple):
    """Batch rows and key heads, from and to."""

    rows: tuple[int, int]
    groups: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Side:
    """What queries, or keys, have of a buffer (B, H, rows, pitch), and the table they read."""

    work: Work
    turned: bool
    room: int  # between the beginning of a block's row and its first partner
    pitch: int

    @property
    def table(self) -> Tensor:
        """Its table (H or 1, distances, T)."""
        return self.work.tables[2 if self.turned else 1]

    @property
    def x(self) -> Tensor:
        """Its rows."""
        return self.work.k[:, :, self.work.facts.lead :] if self.turned else self.work.q

    @property
    def length(self) -> int:
        """How many rows there are."""
        return self.x.shape[2]

    def bytes(self) -> int:
        """Those of a head's buffer."""
        return self.length * self.pitch * self.x.element_size() if self.table.numel() else 0

    def slant(self, heads: int) -> Slant:
        """The numbers of its kernels, for so many heads."""
        least, most = inner(self.work)
        site, group = self.work.site(), self.work.q.shape[1] // self.x.shape[1]
        count = max(0, most - least + 1)
        if not self.turned:
            move, lengths, first = site.start, (site.queries, site.keys), least
        else:
            move, lengths, first = -site.start, (site.keys, site.queries), -most
        return Slant(*lengths, move, move + self.room, first, count, site.low, heads, group)

    def shape(self, size: Size, bias: bool) -> Shape:
        """What its kernels are compiled for."""
        wide = self.x.shape[-1]
        return Shape(size.m, size.n, wide, self.table.shape[-1], power(wide), bias, self.turned)

    def size(self, sizes: dict[int, Size]) -> Size:
        """The tiles of a kernel."""
        if self.x.dtype == torch.float32:
            return EXACT
        return sizes[next(most for most in sizes if self.x.shape[-1] <= most)]


def inner(work: Work) -> tuple[int, int]:
    """The least and the largest distance between the ends of the tables that some pair has."""
    f, site = work.facts, work.site()
    least = max(f.low + 1, 1 - site.queries - f.start)
    most = min(f.high - 1, site.keys - 1 - f.start)
    if f.causal:
        most = min(most, 0)
    if f.width:
        least, most = max(least, 1 - f.width), min(most, f.width - 1)
    return least, most


def sides(work: Work) -> tuple[Side, Side]:
    """Queries and keys; the tiles of the kernels that write say how far they reach."""
    f, up = work.facts, lambda x: max(0, x + -x % 16)
    n, m = work.size("queries").n, work.size("keys").m
    before = up(n - 1 - f.low - f.start)
    query = Side(work, False, before, up(before + f.high + f.start + n + BLOCK.value))
    before = up(f.start + f.high + m)
    key = Side(work, True, before, up(before + BLOCK.value - f.start - f.low + m))
    return query, key


def fit(work: Work) -> bool:
    """Whether the vectors of tables get their gradients by slants: enough rows fit a strip."""
    each = sum(side.bytes() / side.length for side in sides(work) if side.table.numel())
    total = work.q.shape[0] * work.q.shape[1] * max(work.q.shape[2], work.k.shape[2])
    return 0 < each and each * min(total, LEAST) <= ROOM


class Slants:
    """Buffers of a strip, sums by distance of all strips, and the kernels that make them."""

    def __init__(self, work: Work):
        self.work, self.sides = work, sides(work)
        self.batch, self.heads, self.groups = *work.q.shape[:2], work.k.shape[1]
        each = sum(side.bytes() for side in self.sides) * self.heads // self.groups
        self.fit = max(1, ROOM // each)  # key heads
        rows, heads = max(1, self.fit // self.groups), min(self.fit, self.groups)
        heads *= self.heads // self.groups
        kind = {"device": work.q.device, "dtype": work.q.dtype}
        self.buffers = [
            torch.empty(
                (min(rows, self.batch), heads, side.length, side.pitch)
                if side.table.numel()
                else (1, 1, 1, 1),
                **kind,
            )
            for side in self.sides
        ]
        least, most = inner(work)
        self.count = max(0, most - least + 1)
        blocks = tiles(self.count, max(size.n for size in (*SUMS.values(), EXACT)))
        self.shares = max(1, min(16, PROGRAMS // max(1, blocks * heads)))
        long = blocks * max(size.n for size in (*SUMS.values(), EXACT))
        zeros = lambda wide: torch.zeros(
            self.shares, self.heads, long, wide, dtype=torch.float32, device=work.q.device
        )
        self.slabs = [
            zeros(side.table.shape[-1]) if side.table.numel() else None for side in self.sides
        ]
        self.bias = zeros(1)[..., 0] if work.tables[0].numel() else None

    def strips(self) -> Iterator[Strip]:
        """Batch rows, or key heads of one, that fit."""
        rows, groups = max(1, self.fit // self.groups), min(self.fit, self.groups)
        for b in range(0, self.batch, rows):
            for g in range(0, self.groups, groups):
                last = min(b + rows, self.batch), min(g + groups, self.groups)
                yield Strip((b, last[0]), (g, last[1]))

    def views(self) -> tuple[View, View, int, int]:
        """The buffers as the kernels of queries and of keys write them, and their rooms."""
        query, key = map(view, self.buffers)
        return query, key, self.sides[0].room, self.sides[1].room

    def sum(self, strip: Strip, dq: Tensor, dk: Tensor) -> None:
        """Add what a strip's buffers give: to the sums by distance, and to dq and dk."""
        group = self.heads // self.groups
        (b, b1), (g, g1) = strip
        h, h1 = g * group, g1 * group
        for side, d, slab, dx in zip(self.sides, self.buffers, self.slabs, (dq, dk), strict=True):
            if slab is None or not self.count:
                continue
            mine = slice(g, g1) if side.turned else slice(h, h1)
            self._slant(side, d, slab[:, h:h1], side.x[b:b1, mine], (h, h1))
            dx = dx[b:b1, mine, self.work.facts.lead :] if side.turned else dx[b:b1, mine]
            self._pull(side, d, dx, (h, h1))

    def _slant(
        self, side: Side, d: Tensor, slab: Tensor, x: Tensor, heads: tuple[int, int]
    ) -> None:
        size, count = side.size(SUMS), heads[1] - heads[0]
        bias = self.bias is not None and (not side.turned or self.slabs[0] is None)
        total = slab if not bias else self.bias[:, heads[0] : heads[1], None]  # type: ignore[index]
        grid = (tiles(self.count, size.n), count, self.shares)
        start(
            slant, grid, size, view(x), view(d), view(slab), view(total), x.shape[0],
            side.slant(count), side.shape(size, bias),
        )  # fmt: skip

    def _pull(self, side: Side, d: Tensor, dx: Tensor, heads: tuple[int, int]) -> None:
        size, table = side.size(PULLS), side.table
        if table.shape[0] > 1:
            table = table[heads[0] : heads[1]]
        apart = table.stride(0) if table.shape[0] > 1 else 0
        grid = (tiles(side.length, size.m), dx.shape[0] * dx.shape[1])
        given = view(d), View(table, 0, apart, 1), view(dx)
        site = side.slant(heads[1] - heads[0])
        start(pull, grid, size, *given, site, side.shape(size, False))

    def found(self, made: list[Tensor]) -> None:
        """Put the sums where they belong, between the ends of made: (H, distances) or with T."""
        least, _ = inner(self.work)
        at = slice(least - self.work.facts.low, least - self.work.facts.low + self.count)
        for i, (side, slab) in enumerate(zip(self.sides, self.slabs, strict=True)):
            if slab is not None:
                sums = slab.sum(0)[:, : self.count]
                made[1 + i][:, at] = sums.flip(1) if side.turned else sums
        if self.bias is not None:
            sums = self.bias.sum(0)[:, : self.count]
            made[0][:, at] = sums.flip(1) if self.slabs[0] is None else sums
