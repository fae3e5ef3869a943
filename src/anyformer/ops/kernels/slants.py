"""Scores by distance and their gradients in buffers, which tiles read and write as they lie.

A buffer has a row for each query, or key. Distances lie side by side there, the rows of a block
each a place later, so that the places of a tile are one below the other. Along that slant products
of queries, or keys, with a table write what the table brings to scores (`lean`). Kernels with tiles
read that, and write the gradients of scores down; products with queries, or keys, then give the
gradient of the table (`slant`), and products with the table what it gives to queries and keys
(`pull`). Nothing is gathered.

Letters: R rows and C distances of a tile, D head size, BD the same in a tile, T width of the table.
A row's partner, a key or query, is the row + its distance + site.move.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import dot, place, put, rows

BLOCK = tl.constexpr(64)  # rows that begin at the same partner: tiles divide it


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
def lean(x_, t_, bias_, a_, site, S: tl.constexpr, RUN: tl.constexpr):
    """Write what a table (H, distances, T) brings to x (B, H / group, N, D), RUN tiles a program.

    Beyond the ends of the table it is what they bring. A bias (H, distances) is added to it.
    """
    first, bh = tl.program_id(0) * S.R, tl.program_id(2)
    b, h = bh // site.heads, bh % site.heads
    left = site.rows - first
    x = rows(x_, place(x_, b, h // site.group, first), left, S.R, S.D, S.BD)
    r = first + tl.arange(0, S.R)
    # tiles of distances at which some row has a partner
    low = tl.maximum(-(first + S.R - 1) - site.move - site.first, 0) // S.C
    high = tl.minimum(site.count, site.partners - first - site.move - site.first)
    high = (tl.maximum(high, 0) + S.C - 1) // S.C
    begin = tl.maximum(low, tl.program_id(1) * RUN)
    for c in range(begin, tl.minimum(high, (tl.program_id(1) + 1) * RUN)):
        e = site.first + c * S.C + tl.arange(0, S.C)
        by = dot(x, tl.trans(ray(t_, h, e, site, S)))
        if S.bias:
            by += tl.load(bias_.at + h * bias_.h + row_of(e, site, S))[None, :]
        column = (r % BLOCK)[:, None] + (e + site.shift)[None, :]
        partner = r[:, None] + (e + site.move)[None, :]
        seen = (r < site.rows)[:, None] & (partner >= 0) & (partner < site.partners)
        seen = seen & (column >= 0) & (column < a_.n) & (e < site.first + site.count)[None, :]
        at = place(a_, b, h, first) + tl.arange(0, S.R)[:, None] * a_.n + column
        tl.store(at, by.to(a_.at.dtype.element_ty), mask=seen)


@triton.jit
def along(d_, b, h, first, e, site, S: tl.constexpr):
    """The gradients of a tile of rows at the distances e, (R, C); 0 where there is no partner."""
    r = first + tl.arange(0, S.R)
    partner = r[:, None] + (e + site.move)[None, :]
    seen = (r < site.rows)[:, None] & (e < site.first + site.count)[None, :]
    seen = seen & (partner >= 0) & (partner < site.partners)
    at = place(d_, b, h, first) + tl.arange(0, S.R)[:, None] * d_.n
    at += (r % BLOCK)[:, None] + (e + site.shift)[None, :]
    return tl.load(at, mask=seen, other=0.0)


@triton.jit(do_not_specialize=["batch"])
def slant(x_, d_, slab_, total_, batch, site, S: tl.constexpr):
    """Add to slab (Z, H, C', T) the sums of x by distance, of Z shares; to total those alone.

    x (B, H / group, N, D); a program has C distances of a head.
    """
    c, h, share = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    least = site.first + c * S.C
    e = least + tl.arange(0, S.C)
    low = tl.maximum(-(least + S.C - 1) - site.move, 0) // S.R
    high = tl.minimum(site.rows, site.partners - least - site.move)
    count = tl.maximum((high + S.R - 1) // S.R - low, 0)
    work = count * batch
    each = (work + tl.num_programs(2) - 1) // tl.num_programs(2)
    acc = tl.full((S.C, S.BD), 0.0, tl.float32)
    total = tl.full((S.C,), 0.0, tl.float32)
    for step in range(share * each, tl.minimum(work, share * each + each)):
        b, first = step // count, (low + step % count) * S.R
        ds = along(d_, b, h, first, e, site, S)
        x = rows(x_, place(x_, b, h // site.group, first), site.rows - first, S.R, S.D, S.BD)
        acc += dot(tl.trans(ds), x)
        if S.bias:
            total += tl.sum(ds.to(tl.float32), 0)
    at = place(slab_, share, h, c * S.C)
    acc += rows(slab_, at, S.C, S.C, S.T, S.BD)
    put(slab_, at, S.C, acc, S.C, S.T, S.BD)
    if S.bias:
        at = place(total_, share, h, 0) + c * S.C + tl.arange(0, S.C)
        tl.store(at, tl.load(at) + total)


@triton.jit
def row_of(e, site, S: tl.constexpr):
    """Which row of a table distances read."""
    return tl.minimum(tl.maximum(-e if S.turned else e, site.low), site.high) - site.low


@triton.jit
def ray(t_, h, e, site, S: tl.constexpr):
    """The rows of a table for the distances e, (C, BD); beyond its ends, those."""
    row = row_of(e, site, S)
    d = tl.arange(0, S.BD)
    seen = (e < site.first + site.count)[:, None] & (d < S.T)[None, :]
    at = t_.at + tl.cast(h, tl.int64) * t_.h + row[:, None] * S.T + d[None, :]
    return tl.load(at, mask=seen, other=0.0)


@triton.jit
def pull(d_, t_, dx_, site, S: tl.constexpr):
    """Add to dx (B, H / group, N, D) what it gets through a table (H, distances, T)."""
    first, bg = tl.program_id(0) * S.R, tl.program_id(1)
    groups = site.heads // site.group
    b, g = bg // groups, bg % groups
    last = first + S.R - 1 + site.move
    low = tl.maximum(-last - site.first, 0) // S.C
    high = tl.minimum(site.count, site.partners - first - site.move - site.first)
    acc = tl.full((S.R, S.BD), 0.0, tl.float32)
    for i in range(0, site.group):
        h = g * site.group + i
        for c in range(low, (tl.maximum(high, 0) + S.C - 1) // S.C):
            e = site.first + c * S.C + tl.arange(0, S.C)
            ds = along(d_, b, h, first, e, site, S)
            acc += dot(ds, ray(t_, h, e, site, S))
    at, left = place(dx_, b, g, first), site.rows - first
    acc += rows(dx_, at, left, S.R, S.D, S.BD).to(tl.float32)
    put(dx_, at, left, acc, S.R, S.D, S.BD)
