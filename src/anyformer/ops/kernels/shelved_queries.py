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

from anyformer.ops.kernels.ends import MOST, in_parts, sum_places
from anyformer.ops.kernels.merge import late
from anyformer.ops.kernels.shelf import left_over, places, shelf, swapped
from anyformer.ops.kernels.shelved import (
    block,
    blocks,
    far_score,
    held,
    kept,
    key_part,
    last,
    left_side,
    open_shelf,
    own_shelf,
    pair_of,
    query_part,
    query_score,
    row_of,
    seen,
)
from anyformer.ops.kernels.tile import (
    INTERPRETED,
    LOG2E,
    dot,
    key_range,
    lasts,
    least,
    place,
    plus,
    put,
    rows,
    turn,
)

# What the kernel of keys is told of a row, in channels of 16 bits: where its parts end, and all.
LSE, DELTA, TOLD = tl.constexpr(3), tl.constexpr(6), tl.constexpr(8)
UNIT = tl.constexpr(64.0)  # of the first: float16 reaches further so
FOUR = tl.constexpr(
    "red.relaxed.gpu.global.add.v4.f32 [$4], {$8, $9, $10, $11};"
    " mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;"
)
FIRST = tl.constexpr(  # where the column is 0; compilers see which numbers are never in that
    "{ .reg .pred p, q; setp.eq.s32 p, $3, 0; setp.eq.and.s32 q, $4, 0, p;"
    " @q red.relaxed.gpu.global.add.f32 [$1], $2; mov.b32 $0, 0; }"
)
ONES = tl.constexpr(32)  # columns of ones: sums of 16 come out wrong by Triton 3.6


@triton.jit
def add(at, value, SIZE: tl.constexpr, WIDE: tl.constexpr):
    """Add rows (SIZE, WIDE) to sums at an address, which lie as a product's numbers in threads."""
    own, more = sum_places(tl.arange(0, SIZE)[:, None], tl.arange(0, WIDE)[None, :], WIDE)
    if INTERPRETED:
        tl.atomic_add(at + (own + more), value, sem="relaxed")
    else:
        to = (at + own).to(tl.int64) + more.to(tl.int64) * 4
        tl.inline_asm_elementwise(
            FOUR,
            "=r,=r,=r,=r,l,l,l,l,f,f,f,f",
            [to, value],
            dtype=tl.int32,
            is_pure=False,
            pack=4,
        )


@triton.jit
def add_row(at, row, value, WIDE: tl.constexpr):
    """Add one row (WIDE,) to the sums that begin at an address."""
    own, more = sum_places(row, tl.arange(0, WIDE), WIDE)
    tl.atomic_add(at + (own + more), value, sem="relaxed")


@triton.jit
def add_first(at, value, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Add the first column of a tile (SIZE, BLOCK) to numbers at an address."""
    n, d = tl.arange(0, SIZE)[:, None], tl.arange(0, BLOCK)[None, :]
    if INTERPRETED:
        tl.atomic_add(at + (n + d * 0), value, mask=(n >= 0) & (d == 0), sem="relaxed")
    else:
        own, more = places(n, d * 0, 1, 1, 0)
        to = (at + own).to(tl.int64) + more.to(tl.int64) * 4
        tl.inline_asm_elementwise(
            FIRST, "=r,l,f,r,r", [to, value, d & 6, d & -7], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def learned(at, by, x, F: tl.constexpr):
    """Add what a block of rows has in all; by: gradients by row (N, N) of x (N, BD)."""
    add(at, dot(by, x), F.N, F.BD)


@triton.jit
def given_back(acc, by, some, q, slabs, spot, F: tl.constexpr):
    """dq with what comes by a block of rows, whose own gradients are added to the sums.

    by: gradients of scores by query and by row, as of swapped.
    """
    share, h, row = spot
    mine, turned = by
    acc = plus(mine, some, acc)
    if F.bias:
        ones = tl.full((F.M, ONES), 1.0, tl.float32).to(turned.dtype)
        add_first(place(slabs[0], share, h, row), dot(turned, ones), F.N, ONES)
    learned(place(slabs[1], share, h, row), turned, q, F)
    return acc


@triton.jit
def row_stats(grads, b, h, first, site, F: tl.constexpr):
    """grad (M, BE), lse and delta (M,) of a tile of queries, which keys are told of.

    Rows beyond the last query are told of too: they weigh nothing.
    """
    m, left = tl.arange(0, F.M), site.queries - first
    grad = rows(grads[0], place(grads[0], b, h, first), left, F.M, F.E, F.BE)
    out = rows(grads[1], place(grads[1], b, h, first), left, F.M, F.E, F.BE)
    lse = tl.load(place(grads[2], b, h, first) + m, mask=m < left, other=float("inf"))
    delta = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
    c, unit = tl.arange(0, TOLD)[None, :], site.scale * LOG2E * UNIT
    told = in_parts(tl.minimum(lse / unit, MOST), c, 0, grad.dtype) + in_parts(
        delta, c, LSE, grad.dtype
    )
    at = place(grads[3], b, h, first) + m[:, None] * TOLD + c
    tl.store(at, told.to(grad.dtype))
    return grad, lse, delta


@triton.jit
def score_grad(s, mine, v, site):
    """The gradient of scores s (M, N); mine: grad, lse and delta."""
    grad, lse, delta = mine
    dp = dot(grad, tl.trans(v))  # before the exponentials, so that it runs beside them
    p = tl.exp2(s * (site.scale * LOG2E) - lse[:, None])
    return p * (dp - delta[:, None])


@triton.jit
def taken(given, h, row, F: tl.constexpr):
    """The block of rows that gradients of queries take; 0 where there is none."""
    if F.query:
        found = block(given.back if F.other else given.query, h, row, F)
    else:
        found = 0
    return found


@triton.jit
def near(acc, mine, pair, given, shelves, at, span, site, F: tl.constexpr):
    """dq with that of tiles within the tables' reach.

    mine: q, then as of score_grad, and the slabs; at: batch row, head, first query and share.
    """
    k_, v_ = pair
    on, other = shelves
    q, stats, slabs = mine
    own = held(q, F)
    b, h, first, share = at
    keep = given.keep.at + tl.cast(b, tl.int64) * given.keep.b
    row = row_of(least(first, span[0] * F.N, site, F), site, F)
    open_shelf(own, given, on, h, row, F, True)
    for t in tl.range(span[0], span[1], num_stages=F.stages[1]):
        p0 = t * F.N
        k, v = pair_of(k_, v_, (b, h // site.group, p0), site, F, True)
        far = least(first, p0, site, F)
        row = row_of(far, site, F)
        some = blocks(given, h, row, F)
        s, by = dot(own[0], tl.trans(k)), query_part(own, some[0], given, h, row, F)
        s = query_score(seen(s, far, p0, keep, site, F, True, False), by, on, F, False)
        s = key_part(s, k, some[1], other, F)
        steep = score_grad(s, stats, v, site).to(k.dtype)
        old = taken(given, h, row, F)
        acc += dot(steep, k)
        if F.query:
            by = swapped(on, steep, F.N, False)
            acc = given_back(acc, by, old, q, slabs, (share, h, row), F)
    if F.query and span[1] > span[0]:
        row = row_of(least(first, span[1] * F.N - F.N, site, F), site, F) + F.N
        by = left_over(on, q, F.N, False)
        some = taken(given, h, row, F)
        acc = given_back(acc, by, some, q, slabs, (share, h, row), F)
    kept(own, site, F)
    return acc


@triton.jit
def beyond(acc, mine, pair, given, at, span, site, F: tl.constexpr, SIDE: tl.constexpr):
    """dq with that of tiles all below the low end (SIDE 0) or above the high one (2)."""
    k_, v_ = pair
    q, stats, slabs = mine
    b, h, first, share = at
    keep = given.keep.at + tl.cast(b, tl.int64) * given.keep.b
    whole = tl.full((F.M,), 0.0, tl.float32)
    for t in tl.range(span[0], span[1], num_stages=F.stages[0]):
        p0 = t * F.N
        k, v = pair_of(k_, v_, (b, h // site.group, p0), site, F, False)
        s = far_score(q, k, given, h, site, F, SIDE, False)
        s = seen(s, least(first, p0, site, F), p0, keep, site, F, False, False)
        ds = score_grad(s, stats, v, site)
        acc += dot(ds.to(k.dtype), k)
        if F.query:
            whole += tl.sum(ds, 1)
    row = site.pad if SIDE == 0 else site.pad + site.high - site.low
    if F.query:
        acc += whole[:, None] * last(given.query, h, SIDE, site, F)[None, :]
        met = tl.sum(whole[:, None] * q.to(tl.float32), 0)
        add_row(place(slabs[1], share, h, 0), row, met, F.BD)
    if F.bias:
        tl.atomic_add(place(slabs[0], share, h, row), tl.sum(whole, 0), sem="relaxed")
    return acc


@triton.jit
def shelved_queries(q_, pair, grads, dq_, sums, given, site, F: tl.constexpr):
    """grads: grad, out, lse, what keys are told (B, H, Q, TOLD), and the library's dq.

    sums: slabs (S, H, pad + R + pad, BD), and how many shares, S: programs that run together add to
    shares of their own.
    """
    first, bh = turn(F), tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    slabs, shares = sums
    at = b, h, first, (tl.program_id(0) + b) % shares
    left = site.queries - first
    q = rows(q_, place(q_, b, h, first), left, F.M, F.D, F.BD)
    grad, lse, delta = row_stats(grads, b, h, first, site, F)
    grad = left_side(grad, F.BE)
    mine = q, (grad, lse, delta), slabs
    shelves = own_shelf(given, F), shelf(given.scratch, 1) if F.key else 0
    acc = tl.full((F.M, F.BD), 0.0, tl.float32)
    bounds = key_range(first, 0, site, F)
    for side in tl.static_range(3):  # beyond the low end, between, beyond the high end
        span = bounds[side], bounds[side + 1]
        if side == 1:
            acc = near(acc, mine, pair, given, shelves, at, span, site, F)
        elif (side == 0 and F.left) or (side == 2 and F.right):
            acc = beyond(acc, mine, pair, given, at, span, site, F, side)
    lasts(grad, site.queries)
    acc *= site.scale
    if F.other:
        acc += late(grads[4], b, h, first, site, F.M, F.D, F.BD)
    put(dq_, place(dq_, b, h, first), left, acc, F.M, F.D, F.BD)
