"""From tensors to the kernels of slants: buffers of a strip, and sums by distance of all strips.

Letters: B batch, H heads, T width of a table.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import Size, Work, start, tiles, view
from anyformer.ops.kernels.launch_room import Side, Strip, inner, overlap, sides, strips
from anyformer.ops.kernels.slants import STEP, lean, pull, slant
from anyformer.ops.kernels.tile import View

PROGRAMS = 1024  # that share the sums of a strip, at least
RUN = 8  # tiles of distances that a program of `lean` has
TILE = 64  # the most distances of a tile
LEANS = {128: Size(64, 64, 4, 2), 256: Size(64, 32, 4, 2)}  # by the widest head, rows by distances
SUMS = {128: Size(64, 64, 4, 2), 256: Size(32, 32, 4, 2)}
PULLS = {128: Size(64, 64, 4, 2), 256: Size(32, 32, 4, 2)}
EXACT = Size(32, 32, 4, 1)  # of float32


def size_of(side: Side, sizes: dict[int, Size]) -> Size:
    """The tiles of a kernel."""
    if side.x.dtype == torch.float32:
        return EXACT
    return sizes[next(most for most in sizes if side.x.shape[-1] <= most)]


def stepped(rows: int, size: Size) -> int:
    """How many tiles hold so many rows, where those of a tile are STEP apart."""
    return tiles(rows, size.m * STEP.value) * STEP.value


class Buffers:
    """A buffer for each side that has a table, as wide as the largest strip."""

    def __init__(self, work: Work):
        self.work, self.sides = work, sides(work)
        first = next(strips(work))
        self.rows = first.rows[1]
        self.heads = first.heads(work.q.shape[1] // work.k.shape[1])[1]

    def empty(self, dtype: torch.dtype) -> list[Tensor]:
        """Room for both sides (B, H, N, pitch); hardly any where there is no table.

        Tiles read what nobody wrote where keys are hidden; numpy warns of that, so it gets zeros.
        """
        made = lambda x: x.new_empty if x.is_cuda else x.new_zeros
        shape = lambda s: (self.rows, self.heads, s.x.shape[2], s.pitch)
        there = lambda s: shape(s) if s.table.numel() else (1, 1, 1, 1)
        return [made(s.x)(there(s), dtype=dtype) for s in self.sides]

    def views(self, made: list[Tensor]) -> tuple[View, View, int, int]:
        """Buffers as kernels with tiles take them, and the rooms in them."""
        query, key = map(view, made)
        return query, key, self.sides[0].room, self.sides[1].room

    def there(self) -> list[int]:
        """The sides that have a table."""
        return [i for i, side in enumerate(self.sides) if side.table.numel()]

    def table(self, side: Side, heads: tuple[int, int]) -> View:
        """The table of some heads."""
        own = side.table.shape[0] > 1
        table = side.table[slice(*heads)] if own else side.table
        return View(table, 0, table.stride(0) if own else 0, 1)

    def cut(self, x: Tensor, side: Side, strip: Strip) -> Tensor:
        """A strip of queries, or of keys that aren't persistent."""
        heads = strip.groups if side.turned else strip.heads(self.group)
        lead = self.work.facts.lead if side.turned else 0
        return x[slice(*strip.rows), slice(*heads), lead:]

    @property
    def group(self) -> int:
        """Query heads for each key head."""
        return self.work.q.shape[1] // self.work.k.shape[1]


class Leans(Buffers):
    """What vectors in tables bring to the scores of a strip."""

    def __init__(self, work: Work):
        super().__init__(work)
        exact = work.q.dtype == torch.float32
        self.made = self.empty(torch.float32 if exact else torch.float16)  # finer than bfloat16

    def fill(self, strip: Strip) -> tuple[View, View, int, int]:
        """Write it down for a strip; what kernels with tiles are given."""
        heads = strip.heads(self.group)
        for i in self.there():
            side, size = self.sides[i], size_of(self.sides[i], LEANS)
            x = self.cut(self.work.k if side.turned else self.work.q, side, strip)
            site = side.slant(heads[1] - heads[0], inner(self.work, overlap(self.work)))
            runs = tiles(max(1, site.count) + STEP.value, size.n * RUN)
            grid = (stepped(site.rows, size), runs, x.shape[0] * site.heads)
            bias, summing = self.work.tables[0], i == self.there()[0]
            added = View(bias[slice(*heads)], 0, bias.stride(0), 1)
            given = view(x), self.table(side, heads), added, view(self.made[i])
            shape = side.shape(size, bias.numel() > 0 and summing)
            start(lean, grid, size, *given, site, shape, RUN)
        return self.views(self.made)


class Slants(Buffers):
    """Gradients of the scores of a strip, and what comes of them."""

    def __init__(self, work: Work):
        super().__init__(work)
        self.made = self.empty(work.q.dtype)
        least, most = self.inner = inner(work)
        self.count = max(0, most - least + 1)
        blocks, step = tiles(self.count + STEP.value, TILE), STEP.value
        self.shares = step * (2 if blocks * self.heads * step < PROGRAMS else 1)
        zeros = lambda wide: torch.zeros(
            self.shares, work.q.shape[1], blocks * TILE + step, wide, device=work.q.device
        )
        self.slabs = {i: zeros(self.sides[i].table.shape[-1]) for i in self.there()}
        self.bias = zeros(1)[..., 0] if work.tables[0].numel() else None
        self.summing = min(self.slabs)  # the side that also sums for the bias

    def sum(self, strip: Strip, grads: list[Tensor]) -> None:
        """Add what a strip gives: to the sums by distance, and to the gradients of q and k."""
        for i in self.there() if self.count else []:
            self._slant(i, strip)
            self._pull(i, strip, self.cut(grads[i], self.sides[i], strip))

    def _slant(self, i: int, strip: Strip) -> None:
        """Sums by distance of a side."""
        side, heads = self.sides[i], strip.heads(self.group)
        size, x = size_of(side, SUMS), self.cut((self.work.q, self.work.k)[i], side, strip)
        slab, bias = self.slabs[i][:, slice(*heads)], self.bias is not None and i == self.summing
        total = self.bias[:, slice(*heads), None] if bias and self.bias is not None else slab
        site = side.slant(heads[1] - heads[0], self.inner)
        grid = (tiles(self.count + STEP.value, size.n), site.heads, self.shares)
        given = view(x), view(self.made[i]), view(slab), view(total)
        start(slant, grid, size, *given, x.shape[0], site, side.shape(size, bias))

    def _pull(self, i: int, strip: Strip, dx: Tensor) -> None:
        """What a side gets through its table."""
        side, heads = self.sides[i], strip.heads(self.group)
        size, site = size_of(side, PULLS), side.slant(heads[1] - heads[0], self.inner)
        grid = (stepped(site.rows, size), dx.shape[0] * dx.shape[1])
        given = view(self.made[i]), self.table(side, heads), view(dx)
        start(pull, grid, size, *given, site, side.shape(size))

    def found(self, made: list[Tensor]) -> None:
        """Put the sums where they belong, between the ends of bias, query and key in made."""
        at = self.inner[0] - self.work.facts.low
        at = slice(at, at + self.count)
        between = slice(STEP.value, STEP.value + self.count)
        turned = lambda i, x: x.flip(1) if self.sides[i].turned else x
        for i, slab in self.slabs.items():
            made[1 + i][:, at] = turned(i, slab.sum(0)[:, between])
        if self.bias is not None:
            made[0][:, at] = turned(self.summing, self.bias.sum(0)[:, between])
