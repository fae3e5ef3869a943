"""Queries and keys as sides of a buffer by distance: how wide it is, and in which strips it fits.

Letters: B batch, H heads, G key heads, T width of a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from anyformer.ops.capture import replayed
from anyformer.ops.kernels.launch import Size, Work, channels, tiles
from anyformer.ops.kernels.slants import BLOCK, STEP, Shape, Slant
from anyformer.ops.kernels.tile import SOFTMAX, View

ROOM = 512 << 20  # bytes of the buffers of one strip, at most
LEAST, ENOUGH = 12288, 65536  # rows that keep a GPU busy: with fewer, tiles gather; more don't pay
SHARE = 2  # of the keys, the least that is near: far tiles are better with others between them
BUSY = 1 << 28  # scores that keep a GPU busy for longer than the host needs to launch
COPIES = 2  # of a buffer: what is added to scores, and gradients of scores


class Strip(NamedTuple):
    """Batch rows and key heads, from and to."""

    rows: tuple[int, int]
    groups: tuple[int, int]

    def heads(self, group: int) -> tuple[int, int]:
        """Its query heads, from and to."""
        return self.groups[0] * group, self.groups[1] * group


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

    def bytes(self) -> int:
        """Those of one row in a buffer of each kind; 0 where there is no table."""
        return COPIES * self.pitch * self.x.element_size() if self.table.numel() else 0

    def slant(self, heads: int, distances: tuple[int, int]) -> Slant:
        """The numbers of its kernels, for so many heads, and the least and largest distance."""
        least, most = distances
        site, group = self.work.site(), self.work.q.shape[1] // self.x.shape[1]
        move, lengths, first = site.start, (site.queries, site.keys), least
        if self.turned:
            move, lengths, first = -site.start, (site.keys, site.queries), -most
        ends = site.low, site.high
        return Slant(*lengths, move, move + self.room, first, most - least + 1, *ends, heads, group)

    def shape(self, size: Size, bias: bool = False) -> Shape:
        """What its kernels are compiled for."""
        wide = self.x.shape[-1]
        return Shape(size.m, size.n, wide, self.table.shape[-1], channels(wide), bias, self.turned)


def inner(work: Work, more: int = 0) -> tuple[int, int]:
    """The least and the largest distance between the ends of the tables that some pair has.

    With more, so many beyond the ends, and the ends, as well.
    """
    f, site = work.facts, work.site()
    least, most = f.low + 1 - more, f.high - 1 + more
    least, most = max(least, 1 - site.queries - f.start), min(most, site.keys - 1 - f.start)
    if f.causal:
        most = min(most, 0)
    if f.width:
        least, most = max(least, 1 - f.width), min(most, f.width - 1)
    return least, most


def overlap(work: Work) -> int:
    """How far the tiles of kernels may reach beyond a distance within them."""
    sizes = [work.size(kernel) for kernel in ("forward", "queries", "keys")]
    return max(s.m for s in sizes) + max(s.n for s in sizes)


def sides(work: Work) -> tuple[Side, Side]:
    """Queries and keys; a buffer has what tiles read of it, and an eighth and a block more."""
    f, site, more = work.facts, work.site(), overlap(work)
    least, most = inner(work)
    above = BLOCK.value if f.causal else most + more  # beyond the diagonal a tile at most
    up, eighth, block = lambda x: max(0, x) + -max(0, x) % 16, STEP.value, BLOCK.value
    room = lambda before, rows: up(min(eighth + more + before, rows + eighth + block))
    query = room(-least - f.start, site.queries)
    after = min(f.start + above, site.keys + more) + eighth + block
    key = room((0 if f.causal else most) + f.start, site.keys)
    behind = min(-f.start - least + more, site.queries + more) + eighth + block
    return Side(work, False, query, up(query + after)), Side(work, True, key, up(key + behind))


def fit(work: Work) -> bool:
    """Whether vectors by distance go through buffers: most keys are near, and a strip has room.

    It takes more launches, some for each strip: few scores pay for them in a graph alone.
    """
    each = sum(side.bytes() for side in sides(work))
    batch, heads, queries, _ = work.q.shape
    keys = work.site().keys
    least, most = inner(work)
    near = (most - least + 1) * SHARE >= keys
    busy = replayed() or batch * heads * queries * keys >= BUSY
    rows = min(batch * heads * max(queries, keys), LEAST)
    return 0 < each and near and busy and each * rows <= ROOM


def leans(work: Work) -> bool:
    """Whether what vectors bring to scores is written down too.

    It is rounded there, so rows whose weights come of a bound don't: it was found without.
    """
    return work.facts.weigh == SOFTMAX.value and fit(work)


def strips(work: Work) -> Iterator[Strip]:
    """Batch rows, or key heads of one, whose buffers fit; at least one key head at a time."""
    batch, groups = work.q.shape[0], work.k.shape[1]
    length = sum(side.bytes() * side.x.shape[2] for side in sides(work))
    group = work.q.shape[1] // groups
    enough = tiles(ENOUGH, max(work.q.shape[2], work.k.shape[2]) * group)
    some = max(1, min(enough, ROOM // max(1, length * group)))
    rows, heads = max(1, some // groups), min(some, groups)
    for b in range(0, batch, rows):
        for g in range(0, groups, heads):
            yield Strip((b, min(b + rows, batch)), (g, min(g + heads, groups)))


def everything(work: Work) -> Strip:
    """All at once."""
    return Strip((0, work.q.shape[0]), (0, work.k.shape[1]))


def moved(x: View, b: int, h: int) -> View:
    """A view that begins at a batch row and a head; what is there once, or not at all, stays."""
    by = b * x.b + h * x.h
    if not by or x.at.numel() < 2:
        return x
    return x._replace(at=x.at.as_strided((1,), (1,), x.at.storage_offset() + by))
