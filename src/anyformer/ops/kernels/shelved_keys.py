"""The gradients of keys and values, and of what keys read by distance, with a shelf.

A program for each tile of keys, over tiles of queries. Scores stand the other way round here, keys
by queries, so that weights and gradients go into products as they are. What keys bring lies on a
shelf of theirs, as what queries bring in shelved_queries.py: later queries are further back, so
the lower block of rows becomes the upper one. What scores and their gradients lose by query comes
as a product, of channels of 16 bits that add up: numbers by column would take more registers than
there are.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.keys import query_range
from anyformer.ops.kernels.merge import early
from anyformer.ops.kernels.shelf import across, begin, handed, lay, left_over, shelf, swapped, wait
from anyformer.ops.kernels.shelved import (
    block,
    chosen,
    far_score,
    in_channels,
    last,
    left_side,
    of_head,
    row_of,
    seen,
    some_rows,
)
from anyformer.ops.kernels.shelved_queries import DELTA, LSE, TOLD, UNIT, add_row, learned
from anyformer.ops.kernels.tile import LOG2E, dot, lasts, least, place, plus, put, rows


@triton.jit
def taken(TYPE: tl.constexpr, F: tl.constexpr):
    """What products with what is told take off scores, and off their gradients, (N, 32) each."""
    return chosen(0, LSE, -UNIT, F.N, TYPE), chosen(LSE, DELTA, -1.0, F.N, TYPE)


@triton.jit
def less(s, told, off):
    """A tile (N, M) less what is told of its queries in the channels that are taken off."""
    return plus(off, tl.trans(told), s)


@triton.jit
def products_by_row(q, some, bias, h, row, F: tl.constexpr):
    """A block of rows by queries, with the bias of those rows, (N, M)."""
    by = dot(some, tl.trans(q))
    if F.bias:
        by += tl.load(of_head(bias, h) + row + tl.arange(0, F.N)[:, None])
    return by


@triton.jit
def near_score(s, q, k, some, given, shelves, h, row, F: tl.constexpr):
    """The scores of a tile within the tables' reach, (N, M), with what tables bring.

    some: the lower blocks of rows for queries and for keys.
    """
    if F.query:
        low = products_by_row(q, some[0], given.bias, h, row, F)
        wait(False)
        lay(shelves[0], low, F.N, 0)
        more = block(given.query, h, row + F.N, F)
        lay(shelves[0], products_by_row(q, more, given.bias, h, row + F.N, F), F.N, 1)
        s += across(shelves[0], s, F.N, True)
    if F.key:
        by = dot(k, tl.trans(some[1]))
        s += handed(shelves[1], by, s, F.N, True, False)
    return s


@triton.jit
def asked(q_, grads, at, site, F: tl.constexpr, NEAR: tl.constexpr):
    """q (M, BD), grad (M, BE) of a tile of queries, and what is told of them, (M, 32)."""
    b, h, first = at
    left = F.M if F.full else site.queries - first
    ALONE: tl.constexpr = NEAR and F.stages[1] == 1
    q = some_rows(q_, place(q_, b, h, first), left, F.M, F.D, F.BD, ALONE)
    to = place(grads[0], b, h, first)
    grad = some_rows(grads[0], to, left, F.M, F.E, F.BE, ALONE)
    return q, grad, in_channels(place(grads[3], b, h, first), F.M, TOLD)


@triton.jit
def slopes(s, mine, v, dv, site):
    """The gradient of scores (N, M) less log-sum-exps, and dv with a tile's.

    mine: grad, told, and what is taken off gradients.
    """
    grad, told, off = mine
    dp = less(dot(v, tl.trans(grad)), told, off)  # beside the exponentials
    p = tl.exp2(s * (site.scale * LOG2E))
    dv += dot(p.to(grad.dtype), grad)
    return p * dp, dv


@triton.jit
def given_back(dk, by, some, k, slab_, spot, F: tl.constexpr):
    """dk with what comes by a block of rows, whose own gradients are added to the sums."""
    share, h, row = spot
    dk = plus(by[0], some, dk)
    learned(place(slab_, share, h, row), by[1], k, F)
    return dk


@triton.jit
def near(parts, pair, sums, given, at, shelves, span, site, F: tl.constexpr):
    """dk and dv with those of tiles within the tables' reach.

    pair: k and v; at: batch row, head, first key and share of the sums; span: tiles of queries.
    """
    q_, grads = parts
    k, v = pair
    dk, dv, slab_ = sums
    b, h, first, share = at
    keep = given.keep.at + tl.cast(b, tl.int64) * given.keep.b
    if F.key:
        row = row_of(least(span[0] * F.M, first, site, F), site, F) + F.N
        begin(shelves[1], dot(k, tl.trans(block(given.key, h, row, F))), F.N, True, True)
    off = taken(k.dtype, F)
    for t in tl.range(span[0], span[1], num_stages=F.stages[1]):
        m0 = t * F.M
        q, grad, told = asked(q_, grads, (b, h, m0), site, F, True)
        far = least(m0, first, site, F)
        row = row_of(far, site, F)
        some = block(given.query, h, row, F) if F.query else 0
        some = some, block(given.key, h, row, F) if F.key else 0
        s = less(dot(k, tl.trans(q)), told, off[0])
        s = seen(s, far, first, keep, site, F, True, True)
        s = near_score(s, q, k, some, given, shelves, h, row, F)
        ds, dv = slopes(s, (grad, told, off[1]), v, dv, site)
        steep = ds.to(k.dtype)
        old = block(given.key, h, row + F.N, F) if F.key else 0
        dk += dot(steep, q)
        if F.key:
            by = swapped(shelves[1], steep, F.N, True)
            dk = given_back(dk, by, old, k, slab_, (share, h, row + F.N), F)
    lasts(off[0], site.queries)
    lasts(off[1], site.queries)
    if F.key and span[1] > span[0]:
        row = row_of(least(span[1] * F.M - F.M, first, site, F), site, F)
        by, old = left_over(shelves[1], k, F.N, True), block(given.key, h, row, F)
        dk = given_back(dk, by, old, k, slab_, (share, h, row), F)
    return dk, dv


@triton.jit
def beyond(parts, pair, sums, given, at, span, site, F: tl.constexpr, SIDE: tl.constexpr):
    """dk and dv with those of tiles all below the low end (SIDE 0) or above the high one (2)."""
    q_, grads = parts
    k, v = pair
    dk, dv, slab_ = sums
    b, h, first, share = at
    keep = given.keep.at + tl.cast(b, tl.int64) * given.keep.b
    whole = tl.full((F.N,), 0.0, tl.float32)
    off = taken(k.dtype, F)
    for t in tl.range(span[0], span[1], num_stages=F.stages[0]):
        m0 = t * F.M
        q, grad, told = asked(q_, grads, (b, h, m0), site, F, False)
        s = less(far_score(q, k, given, h, site, F, SIDE, True), told, off[0])
        s = seen(s, least(m0, first, site, F), first, keep, site, F, False, True)
        ds, dv = slopes(s, (grad, told, off[1]), v, dv, site)
        dk += dot(ds.to(k.dtype), q)
        if F.key:
            whole += tl.sum(ds, 1)
    if F.key:
        row = site.pad if SIDE == 0 else site.pad + site.high - site.low
        dk += whole[:, None] * last(given.key, h, SIDE, site, F)[None, :]
        met = tl.sum(whole[:, None] * k.to(tl.float32), 0)
        add_row(place(slab_, share, h, 0), row, met, F.BD)
    return dk, dv


@triton.jit
def shelved_keys(q_, pair, grads, made, sums, given, site, F: tl.constexpr):
    """made: dk and dv; grads: grad, out, lse, what is told, the library's dk and dv.

    sums: of keys' rows, a slab (S, H, pad + R + pad, BD), and how many shares it has.
    """
    k_, v_ = pair
    dk_, dv_ = made
    first, bg = tl.program_id(0) * F.N, tl.program_id(1)
    b, g = bg // (site.heads // site.group), bg % (site.heads // site.group)
    left = site.keys - first
    share = (tl.program_id(0) + b) % sums[1]  # programs that run together add apart
    shelves = shelf(given.scratch, 0) if F.query else 0, 0
    if F.key:
        shelves = shelves[0], shelf(given.scratch, 1)
    k = rows(k_, place(k_, b, g, first), left, F.N, F.D, F.BD)
    v = rows(v_, place(v_, b, g, first), left, F.N, F.E, F.BE)
    v = left_side(v, F.BE)
    if not F.key:
        k = left_side(k, F.BD)
    dk = tl.full((F.N, F.BD), 0.0, tl.float32)
    dv = tl.full((F.N, F.BE), 0.0, tl.float32)
    bounds = query_range(first, 0, site, F)
    for i in range(0, site.group):
        at = b, g * site.group + i, first, share
        for side in tl.static_range(3):  # beyond the high end, between, beyond the low end
            span, held = (bounds[side], bounds[side + 1]), (dk, dv, sums[0])
            if side == 1:
                dk, dv = near((q_, grads), (k, v), held, given, at, shelves, span, site, F)
            elif (side == 0 and F.right) or (side == 2 and F.left):
                dk, dv = beyond((q_, grads), (k, v), held, given, at, span, site, F, 2 - side)
    lasts(v, site.queries)
    if not F.key:
        lasts(k, site.queries)
    dk *= site.scale
    if F.other:
        dk, dv = early(grads[4], grads[5], (b, g, first), dk, dv, site, F)
    put(dk_, place(dk_, b, g, first), left, dk, F.N, F.D, F.BD)
    put(dv_, place(dv_, b, g, first), left, dv, F.N, F.E, F.BE)
