"""Vectors by distance in a tile: products with the rows of a table, and turns of their rows.

Of the M + N rows of a table that a tile reads, a query reads N in a row (and a key M): one of r,
r + N, r + 2 N, … for each r < N. So products with blocks of N rows fit into one tile, at r, and
from there to their places it is a turn of each row.

Letters as in tile.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.slants import mark
from anyformer.ops.kernels.tile import anew, dot, table


@triton.jit
def met(F: tl.constexpr, AXIS: tl.constexpr, KEY: tl.constexpr):
    """Whom row r of a block leads to from a query or key, r along an axis; and of which block.

    The second is a number to be compared: block i has those from i to i + 1 times its size.
    """
    SIZE: tl.constexpr = F.M if KEY else F.N  # of a block
    one, r = tl.arange(0, F.N if KEY else F.M) + anew(), tl.arange(0, SIZE)
    one, r = (one[:, None], r[None, :]) if AXIS == 1 else (one[None, :], r[:, None])
    far = one - r + (F.M - 1) if KEY else one + r - (F.M - 1)
    return far & (SIZE - 1), far if KEY else SIZE - 1 - far


@triton.jit
def by_row(x, t, h, first, site, F: tl.constexpr, AXIS: tl.constexpr, KEY: tl.constexpr):
    """Queries or keys x by the rows of a table t that each reads, laid along an axis of a tile."""
    SIZE: tl.constexpr = F.M if KEY else F.N
    _, row = met(F, AXIS, KEY)
    found = tl.full((1, 1), 0.0, tl.float32)
    for i in tl.static_range((F.M + F.N + SIZE - 1) // SIZE):
        some = table(t, h, first + i * SIZE, site, F, SIZE)
        by = dot(x, tl.trans(some)) if AXIS == 1 else dot(some, tl.trans(x))
        found = by if i == 0 else tl.where(row >= i * SIZE, by, found)
    return found


@triton.jit
def pulled(ds, t, h, first, site, F: tl.constexpr, KEY: tl.constexpr, TYPE: tl.constexpr):
    """The inverse: what the slopes of a tile, by query or key, give them through a table's rows."""
    SIZE: tl.constexpr = F.M if KEY else F.N
    to, row = met(F, 1, KEY)
    turned = tl.gather(ds, to, 1).to(TYPE)
    found = tl.full((F.N if KEY else F.M, F.BD), 0.0, tl.float32)
    for i in tl.static_range((F.M + F.N + SIZE - 1) // SIZE):
        here = (row >= i * SIZE) & (row < (i + 1) * SIZE)
        some = table(t, h, first + i * SIZE, site, F, SIZE)
        found += dot(tl.where(here, turned, 0.0), some)
    return found


@triton.jit
def given(acc, ds, extra, at, least, site, F: tl.constexpr, KEY: tl.constexpr):
    """Gradients of queries or keys with what a near tile gives through their table.

    Or those of its scores are written down, for slants; at: as of slants.spots.
    """
    if F.slant:
        left = (site.keys if KEY else site.queries) - at[2]
        R: tl.constexpr = F.N if KEY else F.M
        C: tl.constexpr = F.M if KEY else F.N
        mark(extra[12 if KEY else 11], extra[14 if KEY else 13], at, ds, left, R, C)
    else:
        t = extra[2 if KEY else 15]
        found = pulled(ds, t, at[1], least, site, F, KEY, t.at.dtype.element_ty)
        acc += found * (1 / site.scale)  # all of it is scaled at the end
    return acc


@triton.jit
def spread(x, F: tl.constexpr, AXIS: tl.constexpr, KEY: tl.constexpr):
    """x of a square tile, laid out by table row along an axis, the first N rows and the last."""
    tl.static_assert(F.M == F.N)
    to, row = met(F, AXIS, KEY)
    found = tl.gather(x, to, AXIS)
    return tl.where(row < F.N, found, 0.0), tl.where(row < F.N, 0.0, found)


@triton.jit
def turned_to(
    x, tables, h, at, first, site, F: tl.constexpr, MINE: tl.constexpr, TURNED: tl.constexpr
):
    """What x bring to a tile by a table, at the places (M, N) in it: its rows, MINE, or columns."""
    KEY: tl.constexpr = MINE == TURNED
    AXIS: tl.constexpr = 1 if MINE else 0
    by = by_row(x, tables[2 if KEY else 1], h, first, site, F, AXIS, KEY)
    return tl.gather(by, at & ((F.M if KEY else F.N) - 1), AXIS)
