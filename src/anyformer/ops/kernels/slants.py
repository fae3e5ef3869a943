"""Scores by distance and their gradients in buffers, which tiles read and write as they lie.

A buffer has a row for each query, or key. Distances lie side by side there, the rows of a block
each a place later, so that the places of a tile are one below the other. Along that slant products
of queries, or keys, with a table write what the table brings to scores (`lean`). Kernels with tiles
read that, and write the gradients of scores down; products with queries, or keys, then give the
gradient of the table (`slant`), and products with the table what it gives to queries and keys
(`pull`). Nothing is gathered: those three take rows that are STEP apart, whose distances begin at
the same place of 16 bytes.

Letters: R rows and C distances of a tile, D head size, BD the same in a tile, T width of the table.
A row's partner, a key or query, is the row + its distance + site.move.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import dot, place, put, rows

BLOCK = tl.constexpr(64)  # rows that begin at the same partner
STEP = tl.constexpr(8)  # from a row to the next of a tile, and numbers of 16 bits in 16 bytes
MOST = tl.constexpr(65504.0)  # the largest number of float16


class Slant(NamedTuple):
    """Numbers of one side, queries or keys."""

    rows: int
    partners: int
    move: int  # from a row to the partner at the distance 0
    shift: int  # of columns: that of a distance is row % BLOCK + distance + shift
    first: int  # distances from here on
    count: int
    low: int  # distances of the table's first row and of its last, as queries count them
    high: int
    heads: int
    group: int  # heads for each of x


class Shape(NamedTuple):
    """What a kernel is compiled for."""

    R: int
    C: int
    D: int
    T: int
    BD: int
    bias: bool  # whether there is a bias by distance, which is added, or whose gradient is summed
    turned: bool  # rows are keys: their distances count the other way round


@triton.jit
def spots(d_, room, at, R: tl.constexpr):
    """Where the rows of a tile lie, (R,); at: batch row, head, first row and first partner."""
    b, h, first, partner = at
    r = tl.arange(0, R)
    block = (first + r) // BLOCK * BLOCK
    return place(d_, b, h, first) + r * d_.n + (partner + room - block)


@triton.jit
def mark(d_, room, at, ds, left, R: tl.constexpr, C: tl.constexpr):
    """Write a tile's gradients (R, C) down; at as of spots."""
    to = spots(d_, room, at, R)[:, None] + tl.arange(0, C)[None, :]
    tl.store(to, ds.to(d_.at.dtype.element_ty), mask=(tl.arange(0, R) < left)[:, None])


@triton.jit
def leaned(a_, room, at, left, R: tl.constexpr, C: tl.constexpr, TURNED: tl.constexpr):
    """What a table brings to a tile (R, C), or, turned, (C, R); rows from left on have 0."""
    row, c, seen = spots(a_, room, at, R), tl.arange(0, C), tl.arange(0, R) < left
    if TURNED:
        found = tl.load(row[None, :] + c[:, None], mask=seen[None, :], other=0.0)
    else:
        found = tl.load(row[:, None] + c[None, :], mask=seen[:, None], other=0.0)
    return found.to(tl.float32)


@triton.jit
def turn(t, S: tl.constexpr):
    """The first row of a tile, by its number."""
    return t // STEP * (STEP * S.R) + t % STEP


@triton.jit
def begin(first, site):
    """The last distance up to site.first whose column is a multiple of STEP in a tile's rows."""
    return site.first - (first + site.first + site.shift) % STEP


@triton.jit
def tiles_of(first, e0, site, S: tl.constexpr):
    """Tiles of distances from e0 on at which some row of a tile has a partner: from and to."""
    low = tl.maximum(-(first + STEP * (S.R - 1)) - site.move - e0, 0) // S.C
    high = tl.minimum(site.first + site.count, site.partners - first - site.move) - e0
    return low, (tl.maximum(high, 0) + S.C - 1) // S.C


@triton.jit
def columns(d_, first, e0, site, S: tl.constexpr):
    """Where a tile (R, C) lies from its first row on, and whether an eighth of it has partners.

    What belongs together is read and written together: a place more, or less, harms nobody.
    """
    r, c = tl.arange(0, S.R) * STEP, tl.arange(0, S.C)
    at = (r * d_.n + (first + r) % BLOCK)[:, None] + (e0 + site.shift + c)[None, :]
    at = tl.max_contiguous(tl.multiple_of(at, (1, 8)), (1, 8))
    e = e0 + c // STEP * STEP
    partner = (first + r + site.move)[:, None] + e[None, :]
    seen = (first + r < site.rows)[:, None] & (e < site.first + site.count)[None, :]
    return at, seen & (partner > -STEP) & (partner < site.partners)


@triton.jit
def apart(x_, b, h, first, site, S: tl.constexpr):
    """Where a tile's rows of x lie, (R, BD), and which of that there is."""
    r, d = tl.arange(0, S.R) * STEP, tl.arange(0, S.BD)
    seen = (first + r < site.rows)[:, None] & (d < S.D)[None, :]
    return place(x_, b, h, first) + r[:, None] * x_.n + d[None, :], seen


@triton.jit
def lean(x_, t_, bias_, a_, site, S: tl.constexpr, RUN: tl.constexpr):
    """Write what a table (H, distances, T) brings to x (B, H / group, N, D), RUN tiles a program.

    Beyond the ends of the table it is what they bring. A bias (H, distances) is added to it.
    """
    first, bh = turn(tl.program_id(0), S), tl.program_id(2)
    b, h = bh // site.heads, bh % site.heads
    at, seen = apart(x_, b, h // site.group, first, site, S)
    x = tl.load(at, mask=seen, other=0.0)
    e0 = begin(first, site)
    low, high = tiles_of(first, e0, site, S)
    low = tl.maximum(low, tl.program_id(1) * RUN)
    TYPE: tl.constexpr = a_.at.dtype.element_ty
    for c in range(low, tl.minimum(high, (tl.program_id(1) + 1) * RUN)):
        e = e0 + c * S.C + tl.arange(0, S.C)
        by = dot(x, tl.trans(ray(t_, h, e, site, S)))
        if S.bias:
            by += tl.load(bias_.at + h * bias_.h + row_of(e, site, S))[None, :]
        if TYPE == tl.float16:
            by = tl.minimum(tl.maximum(by, -MOST), MOST)
        to, there = columns(a_, first, e0 + c * S.C, site, S)
        tl.store(place(a_, b, h, first) + to, by.to(TYPE), mask=there)


@triton.jit
def along(d_, b, h, first, e0, site, S: tl.constexpr):
    """The gradients of a tile of rows at the distances from e0 on; 0 where there is no partner."""
    at, seen = columns(d_, first, e0, site, S)
    found = tl.load(place(d_, b, h, first) + at, mask=seen, other=0.0)
    e, mine = e0 + tl.arange(0, S.C)[None, :], first + tl.arange(0, S.R) * STEP + site.move
    least = tl.maximum(-mine, site.first)[:, None]
    beyond = tl.minimum(site.partners - mine, site.first + site.count)[:, None]
    return tl.where((e >= least) & (e < beyond), found, 0.0)


@triton.jit(do_not_specialize=["batch"])
def slant(x_, d_, slab_, total_, batch, site, S: tl.constexpr):
    """Add sums of x by distance to slab (Z, H, STEP + C', T), of Z shares; those alone to total.

    x (B, H / group, N, D); a program has C distances of a head, and every STEP-th row or a part.
    """
    c, h, share = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, parts = share % STEP, tl.num_programs(2) // STEP
    least = begin(first, site)
    e0 = least + c * S.C
    low = tl.maximum(-(e0 + S.C - 1) - site.move, 0) // (STEP * S.R)
    high = tl.minimum(site.rows, site.partners - e0 - site.move)
    count = tl.maximum((high + STEP * S.R - 1) // (STEP * S.R) - low, 0)
    work = count * batch
    each = (work + parts - 1) // parts
    mine = share // STEP * each
    acc = tl.full((S.C, S.BD), 0.0, tl.float32)
    total = tl.full((S.C,), 0.0, tl.float32)
    for step in range(mine, tl.minimum(work, mine + each)):
        b, r0 = step // count, (low + step % count) * (STEP * S.R) + first
        ds = along(d_, b, h, r0, e0, site, S)
        at, seen = apart(x_, b, h // site.group, r0, site, S)
        acc += dot(tl.trans(ds), tl.load(at, mask=seen, other=0.0))
        if S.bias:
            total += tl.sum(ds.to(tl.float32), 0)
    row = STEP + e0 - site.first
    at = place(slab_, share, h, row)
    acc += rows(slab_, at, S.C, S.C, S.T, S.BD)
    put(slab_, at, S.C, acc, S.C, S.T, S.BD)
    if S.bias:
        at = place(total_, share, h, 0) + row + tl.arange(0, S.C)
        tl.store(at, tl.load(at) + total)


@triton.jit
def row_of(e, site, S: tl.constexpr):
    """Which row of a table distances read."""
    return tl.minimum(tl.maximum(-e if S.turned else e, site.low), site.high) - site.low


@triton.jit
def ray(t_, h, e, site, S: tl.constexpr):
    """The rows of a table for the distances e, (C, BD); beyond its ends, those."""
    d = tl.arange(0, S.BD)
    at = t_.at + tl.cast(h, tl.int64) * t_.h + row_of(e, site, S)[:, None] * S.T + d[None, :]
    return tl.load(at, mask=(d < S.T)[None, :], other=0.0)


@triton.jit
def pull(d_, t_, dx_, site, S: tl.constexpr):
    """Add to dx (B, H / group, N, D) what it gets through a table (H, distances, T)."""
    first, bg = turn(tl.program_id(0), S), tl.program_id(1)
    groups = site.heads // site.group
    b, g = bg // groups, bg % groups
    e0 = begin(first, site)
    low, high = tiles_of(first, e0, site, S)
    acc = tl.full((S.R, S.BD), 0.0, tl.float32)
    for i in range(0, site.group):
        h = g * site.group + i
        for c in range(low, high):
            ds = along(d_, b, h, first, e0 + c * S.C, site, S)
            acc += dot(ds, ray(t_, h, e0 + c * S.C + tl.arange(0, S.C), site, S))
    at, seen = apart(dx_, b, g, first, site, S)
    acc += tl.load(at, mask=seen, other=0.0).to(tl.float32)
    tl.store(at, acc.to(dx_.at.dtype.element_ty), mask=seen)
