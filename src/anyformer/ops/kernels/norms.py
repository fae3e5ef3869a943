"""How far a falling slope lets a query see: the largest norms of q and k, and the reach from them.

A score is at most scale · |q| · |k| in size, and a query's own key has the distance 0. So a key at
the distance d weighs at most exp(2 · scale · max |q| · max |k| - slope · d) times the query's own
one. Where that is below what float32 can add, all keys of a row taken together, they are left out.

Letters as in tile.py; C parts of the rows, of ROWS each.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import LOG2E, head, place, rows

FAINT = tl.constexpr(28.0)  # below 2 to the minus this, and the number of scores, nothing counts
ENDLESS = tl.constexpr(1 << 30)  # further than any key


@triton.jit
def largest(x_, b, h, first, count, D: tl.constexpr, BD: tl.constexpr, M: tl.constexpr):
    """The largest square of a norm among rows of a head, from first on."""
    found = tl.full((M,), 0.0, tl.float32)
    for at in range(0, count, M):
        x = rows(x_, place(x_, b, h, first + at), count - at, M, D, BD).to(tl.float32)
        here = tl.sum(x * x, 1)
        found = tl.maximum(found, tl.where(here == here, here, float("inf")))
    return tl.max(found, 0)


@triton.jit
def norms(q_, k_, found_, site, each, S: tl.constexpr):
    """Squares of the largest norms: found (B, H, 2, C), of q and of k, by parts of each rows."""
    c, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    first = c * each
    at = place(found_, b, h, 0) + c
    count = tl.minimum(site.queries - first, each)
    tl.store(at, largest(q_, b, h, first, count, S.D, S.BD, S.M))
    count = tl.minimum(site.keys - first, each)
    g = h // site.group
    tl.store(at + found_.n, largest(k_, b, g, site.lead + first, count, S.D, S.BD, S.M))


@triton.jit
def reach(norms_, slope_, b, h, site, F: tl.constexpr):
    """The distance from which on no key of a head weighs anything; F.parts 0: there is none.

    norms_ as `norms` leaves them, (B, H, 2, F.parts).
    """
    if F.parts:
        at = head(norms_, b, h) + tl.arange(0, F.parts)
        q, k = tl.max(tl.load(at), 0), tl.max(tl.load(at + F.parts), 0)
        most = 2 * site.scale * LOG2E * tl.sqrt(q * k)
        slope = tl.load(slope_.at + h)  # in units of log 2
        faint = FAINT + 2 * tl.log2(tl.cast(site.keys, tl.float32))
        far = (tl.abs(most) + faint) / tl.where(slope > 0, slope, 1.0)
        sure = (slope > 0) & (far < ENDLESS)  # not where a number is NaN or infinite
        found = tl.where(sure, tl.minimum(far, ENDLESS - 1.0).to(tl.int32) + 1, ENDLESS)
    else:
        found = 0 * h
    return found
