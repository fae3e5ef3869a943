"""The gradients of queries and of what they read by distance, with a shelf.

A program for each tile of queries, over tiles of keys, as forwards: what is laid for scores is
taken by their gradients, and a block of rows that later keys don't read any more holds all that the
tile gives to it. So each block is multiplied once: for the queries, and for the table's rows, whose
sums all programs add to in float32, in the order in which they come. The last bits may differ from
run to run, and where torch is asked to be deterministic, other kernels do it. Sums by row of a
table are as long as the table is here (shelved.py): what lies beyond an end is folded into its row
later.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.merge import late
from anyformer.ops.kernels.queries import row_stats
from anyformer.ops.kernels.shelf import left_over, shelf, swapped
from anyformer.ops.kernels.shelved import (
    block,
    far_score,
    key_part,
    last,
    open_shelf,
    own_shelf,
    query_part,
    row_of,
    seen,
)
from anyformer.ops.kernels.tile import LOG2E, dot, key_range, least, place, plus, put, rows, turn

ONES = tl.constexpr(32)  # columns of ones: sums of 16 come out wrong by Triton 3.6


@triton.jit
def add(at, value, SIZE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Add rows (SIZE, BLOCK) to those that lie close at an address."""
    n, d = tl.arange(0, SIZE)[:, None], tl.arange(0, BLOCK)[None, :]
    if WIDE == BLOCK:
        tl.atomic_add(at + (n * WIDE + d), value, sem="relaxed")
    else:
        tl.atomic_add(at + (n * WIDE + d), value, mask=(n >= 0) & (d < WIDE), sem="relaxed")


@triton.jit
def learned(at, by, x, F: tl.constexpr):
    """Add what a block of rows has in all; by: gradients (N, N) of x (N, BD) by row."""
    add(at, dot(tl.trans(by), x), F.N, F.T, F.BD)


@triton.jit
def given_back(acc, by, some, q, slabs, spot, F: tl.constexpr):
    """dq with what comes by a block of rows; gradients by row, (M, N), are added to the sums."""
    share, h, row = spot
    if F.query:
        acc = plus(by, some, acc)
        learned(place(slabs[1], share, h, row), by, q, F)
    if F.bias:
        ones, n = tl.full((F.M, ONES), 1.0, tl.float32).to(by.dtype), tl.arange(0, F.N)
        met = tl.sum(dot(tl.trans(by), ones), 1) * (1.0 / ONES)
        tl.atomic_add(place(slabs[0], share, h, row) + n, met, sem="relaxed")
    return acc


@triton.jit
def score_grad(s, mine, v, site):
    """The gradient of scores s (M, N); mine: grad, lse and delta."""
    grad, lse, delta = mine
    dp = dot(grad, tl.trans(v))  # before the exponentials, so that it runs beside them
    p = tl.exp2(s * (site.scale * LOG2E) - lse[:, None])
    return p * (dp - delta[:, None])


@triton.jit
def near(acc, mine, pair, given, shelves, slabs, at, span, site, F: tl.constexpr):
    """dq with that of tiles within the tables' reach.

    mine: q, then as of score_grad; at: batch row, head, first query and share of the sums.
    """
    k_, v_ = pair
    on, other = shelves
    q, stats = mine
    b, h, first, share = at
    keep = given.keep.at + tl.cast(b, tl.int64) * given.keep.b
    row = row_of(least(first, span[0] * F.N, site, F), site, F)
    open_shelf(q, given, on, h, row, F, True)
    for t in tl.range(span[0], span[1], num_stages=F.stages[1]):
        p0 = t * F.N
        k = rows(k_, place(k_, b, h // site.group, p0), site.keys - p0, F.N, F.D, F.BD)
        v = rows(v_, place(v_, b, h // site.group, p0), site.keys - p0, F.N, F.E, F.BE)
        far = least(first, p0, site, F)
        s, row = dot(q, tl.trans(k)), row_of(far, site, F)
        s = query_part(s, q, given, on, h, row, F)
        s = key_part(s, k, given, other, h, row, F)
        s = seen(s, far, p0, keep, site, F, True, False)
        steep = score_grad(s, stats, v, site).to(k.dtype)
        acc += dot(steep, k)
        if F.query or F.bias:
            by = swapped(on, steep, F.N, False)
            some = block(given.query, h, row, F) if F.query else 0
            acc = given_back(acc, by, some, q, slabs, (share, h, row), F)
    if (F.query or F.bias) and span[1] > span[0]:
        row = row_of(least(first, span[1] * F.N - F.N, site, F), site, F) + F.N
        by = left_over(on, q, F.N, False)
        some = block(given.query, h, row, F) if F.query else 0
        acc = given_back(acc, by, some, q, slabs, (share, h, row), F)
    return acc


@triton.jit
def beyond(acc, mine, pair, given, slabs, at, span, site, F: tl.constexpr, SIDE: tl.constexpr):
    """dq with that of tiles all below the low end (SIDE 0) or above the high one (2)."""
    k_, v_ = pair
    q, stats = mine
    b, h, first, share = at
    keep = given.keep.at + tl.cast(b, tl.int64) * given.keep.b
    whole = tl.full((F.M,), 0.0, tl.float32)
    for t in tl.range(span[0], span[1], num_stages=F.stages[0]):
        p0 = t * F.N
        k = rows(k_, place(k_, b, h // site.group, p0), site.keys - p0, F.N, F.D, F.BD)
        v = rows(v_, place(v_, b, h // site.group, p0), site.keys - p0, F.N, F.E, F.BE)
        s = far_score(q, k, given, h, site, F, SIDE, False)
        s = seen(s, least(first, p0, site, F), p0, keep, site, F, False, False)
        ds = score_grad(s, stats, v, site)
        acc += dot(ds.to(k.dtype), k)
        if F.query or F.bias:
            whole += tl.sum(ds, 1)
    row = site.pad if SIDE == 0 else site.pad + site.high - site.low
    if F.query:
        acc += whole[:, None] * last(given.query, h, SIDE, site, F)[None, :]
        d, met = tl.arange(0, F.BD), tl.sum(whole[:, None] * q.to(tl.float32), 0)
        tl.atomic_add(place(slabs[1], share, h, row) + d, met, mask=d < F.T, sem="relaxed")
    if F.bias:
        tl.atomic_add(place(slabs[0], share, h, row), tl.sum(whole, 0), sem="relaxed")
    return acc


@triton.jit
def shelved_queries(q_, pair, grads, dq_, sums, given, site, F: tl.constexpr):
    """grads: grad, out, lse, delta to be filled, and the library's dq; sums: slabs, their shares.

    Slabs are (S, H, pad + R + pad, T): programs that run together add to shares of their own.
    """
    first, bh = turn(F), tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    slabs, shares = sums
    at = b, h, first, (tl.program_id(0) + b) % shares
    left = site.queries - first
    q = rows(q_, place(q_, b, h, first), left, F.M, F.D, F.BD)
    mine = q, row_stats(grads, b, h, first, site, F)
    shelves = own_shelf(given, F), shelf(given.scratch, 1) if F.key else 0
    acc = tl.full((F.M, F.BD), 0.0, tl.float32)
    bounds = key_range(first, 0, site, F)
    for side in tl.static_range(3):  # beyond the low end, between, beyond the high end
        span = bounds[side], bounds[side + 1]
        if side == 1:
            acc = near(acc, mine, pair, given, shelves, slabs, at, span, site, F)
        elif (side == 0 and F.left) or (side == 2 and F.right):
            acc = beyond(acc, mine, pair, given, slabs, at, span, site, F, side)
    acc *= site.scale
    if F.other:
        acc += late(grads[4], b, h, first, site, F.M, F.D, F.BD)
    put(dq_, place(dq_, b, h, first), left, acc, F.M, F.D, F.BD)
