"""The scores of one tile: near ones read the tables by distance, far ones their ends.

Letters as in tile.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.slants import leaned
from anyformer.ops.kernels.tile import LOG2E, anew, dot, end, plus
from anyformer.ops.kernels.vectors import turned_to


@triton.jit
def near_bias(x, h, first, site, F: tl.constexpr, TURNED: tl.constexpr):
    """The bias of a tile, first being its least distance.

    The table is there four times, each a number later, so that every row of a tile finds its
    numbers in fours; and again the other way round, for tiles that are turned.
    """
    m, n = tl.arange(0, F.M), tl.arange(0, F.N)
    far = first - site.low + site.pad + F.M - 1
    if TURNED:
        row, column = x.n + 2 - far - n, m
    else:
        row, column = far - m, n
    at = (row + (row & 3) * (x.n - 1))[:, None] + column[None, :]
    at = tl.max_contiguous(tl.multiple_of(at, (1, 4)), (1, 4))
    here = x.at + tl.cast(h, tl.int64) * x.h
    return tl.load((here + x.b if TURNED else here) + at)


@triton.jit
def far_query(q, tables, h, row, site, F: tl.constexpr):
    """What queries add to all scores beyond an end, (M,): bias, and q by that row of the table."""
    more = tl.full((F.M,), 0.0, tl.float32)
    if F.bias:
        more += tl.load(tables[0].at + tl.cast(h, tl.int64) * tables[0].h + row + site.pad)
    if F.query:
        last = end(tables[1], h, row, F).to(tl.float32)
        more += tl.sum(q.to(tl.float32) * last[None, :], 1) * LOG2E
    return more


@triton.jit
def far_key(k, tables, h, row, F: tl.constexpr):
    """What keys add to all scores beyond an end, (N,).

    It could be part of the queries, as q + row, but in 16 bits a short q would be lost there.
    """
    more = tl.full((F.N,), 0.0, tl.float32)
    if F.key:
        last = end(tables[2], h, row, F).to(tl.float32)
        more += tl.sum(k.to(tl.float32) * last[None, :], 1) * LOG2E
    return more


@triton.jit
def far_score(
    pair, mine, tables, h, away, site, F: tl.constexpr, SIDE: tl.constexpr, TURNED: tl.constexpr
):
    """The scores of a tile all below low (SIDE 0) or above high (2).

    mine (rows,) is what x adds to all of them; x and y, the pair, and away as in near_score.
    """
    x, y = pair
    row = 0 if SIDE == 0 else site.high - site.low
    s = dot(x, tl.trans(y)) * (site.scale * LOG2E)
    if F.slope:
        slope = tl.load(tables[5].at + h)
        slope = slope if SIDE == 0 else -slope
        s += (mine + slope * away[0].to(tl.float32))[:, None]
        s += (slope * away[1].to(tl.float32))[None, :]
    elif F.key if TURNED else F.bias or F.query:
        s += mine[:, None]
    if TURNED and (F.bias or F.query):
        s += far_query(y, tables, h, row, site, F)[None, :]
    if F.key and not TURNED:
        s += far_key(y, tables, h, row, F)[None, :]
    return s


@triton.jit
def near_score(x, y, tables, h, away, first, site, F: tl.constexpr, TURNED: tl.constexpr):
    """The scores of a tile within the tables' reach.

    away is k - q as of steps and first the least of it; x (rows, D) are queries and
    y (columns, D) keys, or, turned, the other way round.
    """
    at = away[0][:, None] + away[1][None, :] - first + anew()
    undo = 1 / site.scale  # what comes from the tables isn't scaled, as all scores are then
    # Sums that begin with what the tables bring lie as products do; else all would lie as gathers.
    if F.query and F.key:
        by = turned_to(x, tables, h, at, first, site, F, True, TURNED)
        by += turned_to(y, tables, h, at, first, site, F, False, TURNED)
        s = plus(x, tl.trans(y), by * undo)
    elif F.query or F.key:
        MINE: tl.constexpr = F.key if TURNED else F.query
        by = turned_to(x if MINE else y, tables, h, at, first, site, F, MINE, TURNED)
        s = plus(x, tl.trans(y), by * undo)
    else:
        s = dot(x, tl.trans(y))
    s = s * (site.scale * LOG2E)
    if F.bias:
        s += near_bias(tables[0], h, first, site, F, TURNED)
    return sloped(s, tables, h, away, F)


@triton.jit
def lean_score(x, y, tables, at, away, site, F: tl.constexpr, TURNED: tl.constexpr):
    """The same of buffers that have what bias and vectors in the tables bring.

    at: batch row and head, first query, first key.
    """
    b, h, i, j = at
    by = tl.full((1, 1), 0.0, tl.float32)
    if F.query:
        left = site.queries - i
        by += leaned(tables[7], tables[9], (b, h, i, j), left, F.M, F.N, TURNED)
    if F.key:
        left = site.keys - j
        other = leaned(tables[8], tables[10], (b, h, j, i), left, F.N, F.M, not TURNED)
        if TURNED:  # sums over queries: what isn't one must be a number
            other = tl.where((i + tl.arange(0, F.M) < site.queries)[None, :], other, 0.0)
        by += other
    s = plus(x, tl.trans(y), by * (1 / site.scale)) * (site.scale * LOG2E)
    return sloped(s, tables, h, away, F)


@triton.jit
def sloped(s, tables, h, away, F: tl.constexpr):
    """Scores with what a slope takes off by distance."""
    if F.slope:
        far = away[0].to(tl.float32)[:, None] + away[1].to(tl.float32)[None, :]  # exact
        s += tl.load(tables[5].at + h) * (far if F.causal else -tl.abs(far))
    return s
