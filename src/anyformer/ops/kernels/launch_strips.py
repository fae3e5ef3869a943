"""Strips of queries, one after the other, whose scores of all heads fit into a buffer."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import prod
from typing import NamedTuple, Protocol

from torch import Tensor

from anyformer.ops.kernels.launch import Facts, power
from anyformer.ops.kernels.strips import Strip
from anyformer.ops.kernels.tile import View

ROOM = 30 << 20  # scores of a strip, of all heads: more room, more memory and fewer launches
LONG = 4096  # keys that a query of long rows may see
SUMS = 1 << 20  # numbers of matrices of heads, of which each query of a strip may have one


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


class Grain(NamedTuple):
    """Queries of a block, and keys at a time that its rows of a buffer have."""

    block: int
    even: int

    def filled(self, keys: int) -> int:
        """Keys of a row of a buffer: whole tiles."""
        return keys + -keys % self.even


FINE, COARSE = Grain(64, 128), Grain(128, 128)  # the second where rows are long


def long_rows(work: Stripped) -> bool:
    """Whether a query may see many keys."""
    f, keys = work.facts, work.k.shape[2]
    reach = min(keys, f.lead + f.width * (1 if f.causal else 2)) if f.width else keys
    return reach >= LONG


def grain(work: Stripped) -> Grain:
    """How coarse the edges of a call's strips are."""
    return COARSE if long_rows(work) else FINE


class Piece(NamedTuple):
    """Batch rows, queries and keys of a strip, and its numbers."""

    rows: slice
    queries: slice
    keys: slice
    strip: Strip
    alone: bool  # it has all queries of its rows
    grain: Grain

    def of(self, x: Tensor, axis: slice) -> Tensor:
        """The rows of x (B, H, N, D) that it has."""
        return x[self.rows, :, axis]

    @property
    def size(self) -> tuple[int, int, int, int]:
        """The shape of its scores in a buffer, (B, H, R, W)."""
        s = self.strip
        return self.rows.stop - self.rows.start, s.heads, s.queries, self.grain.filled(s.keys)

    def within(self, room: Tensor) -> Tensor:
        """Its scores (B, H, R, W) in a buffer."""
        return room[: prod(self.size)].view(self.size)


def kept(keep: Tensor, rows: slice) -> View:
    """Keys to keep of some batch rows."""
    keep = keep[rows] if keep.shape[0] > 1 else keep
    return View(keep, keep.stride(0) if keep.shape[0] > 1 else 0, 0, 1)


def seen(work: Stripped, first: int, last: int) -> tuple[int, int]:
    """Keys that queries from first up to last may see, from and to."""
    f, low, high = work.facts, 0, work.k.shape[2]
    if f.causal:
        high = min(high, f.lead + f.start + last)
    if f.width:
        high = min(high, f.lead + f.start + last - 1 + f.width)
        low = 0 if f.lead else max(0, f.start + first - f.width + 1)
    return low, max(low, high)


def cuts(work: Stripped, room: int) -> tuple[int, list[int]]:
    """Batch rows of a strip, and where strips of their queries begin, the end included."""
    batch, heads, queries, _ = work.q.shape
    fine, most = grain(work), max(128, SUMS // power(heads) ** 2)

    def size(first: int, count: int) -> int:
        low, high = seen(work, first, min(first + count, queries))
        return heads * min(count, queries - first) * fine.filled(max(1, high - low))

    rows = min(batch, room // size(0, queries), most // queries)
    if rows:
        return rows, [0, queries]
    found = [0]
    while (first := found[-1]) < queries:
        left = min(queries - first, most)
        for unit in (64, 16):
            some = range(1, -(-left // unit) + 1)
            units = bisect_right(some, room, key=lambda n, at=first, u=unit: size(at, n * u))
            if units:
                break
        found.append(min(first + max(1, units) * unit, queries))
    return 1, found


def pieces(work: Stripped, room: int = 0) -> Iterator[Piece]:
    """The strips of a call, in order; each has the keys that one of its queries may see."""
    batch, heads, _, channels = work.q.shape
    f, (rows, at) = work.facts, cuts(work, room or ROOM)
    for row in range(0, batch, rows):
        for first, last in pairwise(at):
            low, high = seen(work, first, last)
            strip = Strip(
                queries=last - first,
                keys=high - low,
                first=f.start + first,
                low=low - f.lead,
                width=f.width,
                heads=heads,
                group=heads // work.k.shape[1],
                scale=work.scale,
                channels=channels,
            )
            some = slice(row, min(row + rows, batch))
            yield Piece(
                some, slice(first, last), slice(low, high), strip, len(at) == 2, grain(work)
            )


def size_of(some: Iterable[Piece]) -> int:
    """Scores of the largest strip, with what fills up its rows."""
    return max((prod(piece.size) for piece in some), default=0)
