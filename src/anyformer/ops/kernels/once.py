"""All gradients from one look at each tile: a program for each tile of keys, over tiles of queries.

The sums for its keys and values are a program's own. What a tile gives to queries and to rows of
tables is added to sums in float32 that all programs share, in the order in which they come: so the
last bits may differ from run to run, and where torch is asked to be deterministic, other kernels do
it. Sums by row of a table are as long as the table is here (shelved.py): what lies beyond an end is
folded into its row later.

A tile reads two blocks of rows. The next one, of later queries, reads the lower of them again, as
its upper: so each block's sum is handed on once, and then added.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.keys import asked, query_range
from anyformer.ops.kernels.merge import early, late
from anyformer.ops.kernels.queries import row_stats
from anyformer.ops.kernels.shelf import (
    NUMBERS,
    PAD,
    by_query,
    cleared,
    lay_block,
    shelf,
    slid,
    wait,
)
from anyformer.ops.kernels.shelved import block, far_score, key_part, last, products, row_of, seen
from anyformer.ops.kernels.tile import LOG2E, dot, least, place, plus, put, rows, steps

ONES = tl.constexpr(32)  # columns of ones: sums of 16 come out wrong by Triton 3.6


@triton.jit
def begin(grads, total_, site, F: tl.constexpr):
    """Write delta, by queries.row_stats, and zeros where gradients of queries are summed."""
    first, bh = tl.program_id(0) * F.M, tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    row_stats(grads, b, h, first, site, F)
    none = tl.full((F.M, F.BD), 0.0, tl.float32)
    put(total_, place(total_, b, h, first), site.queries - first, none, F.M, F.D, F.BD)


@triton.jit
def finish(total_, other_, dq_, site, F: tl.constexpr):
    """The gradients of queries, of their sums and the library's."""
    first, bh = tl.program_id(0) * F.M, tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    left = site.queries - first
    acc = rows(total_, place(total_, b, h, first), left, F.M, F.D, F.BD) * site.scale
    if F.other:
        acc += late(other_, b, h, first, site, F.M, F.D, F.BD)
    put(dq_, place(dq_, b, h, first), left, acc, F.M, F.D, F.BD)


@triton.jit
def add(at, count, value, SIZE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Add rows (SIZE, BLOCK) to those that lie close at an address, up to a count of them."""
    n, d = tl.arange(0, SIZE), tl.arange(0, BLOCK)
    there = (n < count)[:, None]
    if WIDE != BLOCK:
        there = there & (d < WIDE)[None, :]
    tl.atomic_add(at + (n[:, None] * WIDE + d[None, :]), value, mask=there, sem="relaxed")


@triton.jit
def learned(at, by, x, carry, F: tl.constexpr):
    """Add what the upper block of rows has in all; the sum of the lower one so far.

    by: gradients of scores by row, (N, N) each; x (N, BD): whom they belong to.
    """
    low, high = by
    add(at + F.N * F.T, F.N, plus(tl.trans(high), x, carry), F.N, F.T, F.BD)
    return dot(tl.trans(low), x)


@triton.jit
def counted(at, by, carry, F: tl.constexpr):
    """The same for a bias, as a product with ones."""
    low, high = by
    ones, n = tl.full((F.M, ONES), 1.0, tl.float32).to(low.dtype), tl.arange(0, F.N)
    done = plus(tl.trans(high), ones, carry)
    tl.atomic_add(at + F.N + n, tl.sum(done, 1) * (1.0 / ONES), sem="relaxed")
    return dot(tl.trans(low), ones)


@triton.jit
def left_over(at, carry, F: tl.constexpr):
    """Add what nobody takes over; at: of the lower blocks."""
    if F.bias:
        n = tl.arange(0, F.N)
        tl.atomic_add(at[0] + n, tl.sum(carry[0], 1) * (1.0 / ONES), sem="relaxed")
    if F.query:
        add(at[1], F.N, carry[1], F.N, F.T, F.BD)
    if F.key:
        add(at[2], F.N, carry[2], F.N, F.T, F.BD)


@triton.jit
def spots(slabs, share, h, row):
    """Where a row of each slab lies."""
    return (
        place(slabs[0], share, h, row),
        place(slabs[1], share, h, row),
        place(slabs[2], share, h, row),
    )


@triton.jit
def score_grad(s, mine, v, site):
    """The weights of scores s (M, N) in 16 bits, and their gradient; mine: grad, lse and delta."""
    grad, lse, delta = mine
    p = tl.exp2(s * (site.scale * LOG2E) - lse[:, None])
    dp = dot(grad, tl.trans(v))
    return p.to(grad.dtype), p * (dp - delta[:, None])


@triton.jit
def near_score(q, k, given, shelves, h, row, some, F: tl.constexpr):
    """The scores of a tile within the tables' reach; some: both blocks of the queries' table."""
    WIDE: tl.constexpr = 2 * F.N + PAD
    ALONE: tl.constexpr = F.M == 64
    s = dot(q, tl.trans(k))
    if F.query or F.bias:
        wait(ALONE and not F.key)
        lay_block(shelves[0], products(q, some[0], given.bias, h, row, F), 0, F, WIDE)
        lay_block(shelves[0], products(q, some[1], given.bias, h, row + F.N, F), 1, F, WIDE)
        wait(ALONE)
        s += by_query(shelves[0], s, 0, F, WIDE)
    return key_part(s, k, given, shelves[0], h, row, F)


@triton.jit
def near(parts, pair, sums, given, at, shelves, span, site, F: tl.constexpr):
    """dk and dv with those of tiles within the tables' reach.

    pair: k and v; at: batch row, head, first key and share of the sums; span: tiles of queries.
    """
    q_, grads = parts
    k, v = pair
    dk, dv, total_, slabs = sums
    b, h, first, share = at
    keep = given.keep.at + tl.cast(b, tl.int64) * given.keep.b
    none = tl.full((F.N, F.BD), 0.0, tl.float32)
    bias, query, key = tl.full((F.N, ONES), 0.0, tl.float32), none, none
    for t in tl.range(span[0], span[1], num_stages=F.stages[1]):
        m0 = t * F.M
        q, grad, lse, delta, _ = asked(q_, grads, given.keep, (b, h, m0), site, F)
        far = least(m0, first, site, F)
        row, some = row_of(far, site, F), (0, 0)
        if F.query:
            some = block(given.query, h, row, F), block(given.query, h, row + F.N, F)
        s = near_score(q, k, given, shelves, h, row, some, F)
        s = seen(s, steps(far, F, False), far, first, keep, site, F, True)
        p, ds = score_grad(s, (grad, lse, delta), v, site)
        dv += dot(tl.trans(p), grad)
        steep = ds.to(k.dtype)
        dk += dot(tl.trans(steep), q)
        dq = dot(steep, k)
        spot = spots(slabs, share, h, row)
        if F.query or F.bias:
            by = slid(ds, shelves[1], F, False, k.dtype)
            if F.query:
                dq = plus(by[1], some[1], plus(by[0], some[0], dq))
        add(place(total_, b, h, m0), site.queries - m0, dq, F.M, F.D, F.BD)
        if F.query:
            query = learned(spot[1], by, q, query, F)
        if F.bias:
            bias = counted(spot[0], by, bias, F)
        if F.key:
            by = slid(ds, shelves[1], F, True, k.dtype)
            dk = plus(by[0], block(given.key, h, row, F), dk)
            dk = plus(by[1], block(given.key, h, row + F.N, F), dk)
            key = learned(spot[2], by, k, key, F)
    if span[1] > span[0]:
        row = row_of(least(span[1] * F.M - F.M, first, site, F), site, F)
        left_over(spots(slabs, share, h, row), (bias, query, key), F)
    return dk, dv


@triton.jit
def beyond(parts, pair, sums, given, at, span, site, F: tl.constexpr, SIDE: tl.constexpr):
    """dk and dv with those of tiles all below the low end (SIDE 0) or above the high one (2).

    What queries give to the end's row is what they give to all keys here.
    """
    q_, grads = parts
    k, v = pair
    own, dv, total_, slabs = sums
    b, h, first, share = at
    keep, end = given.keep.at + tl.cast(b, tl.int64) * given.keep.b, 0
    if F.query:
        end = last(given.query, h, SIDE, site, F)
    dk = tl.full((F.N, F.BD), 0.0, tl.float32)
    whole = tl.full((F.N, ONES), 0.0, tl.float32)
    ones = tl.full((F.M, ONES), 1.0, tl.float32).to(k.dtype)
    for t in tl.range(span[0], span[1], num_stages=F.stages[0]):
        m0 = t * F.M
        q, grad, lse, delta, _ = asked(q_, grads, given.keep, (b, h, m0), site, F)
        far = least(m0, first, site, F)
        s = far_score(q, k, given, h, site, F, SIDE)
        s = seen(s, steps(far, F, False), far, first, keep, site, F, False)
        p, ds = score_grad(s, (grad, lse, delta), v, site)
        dv += dot(tl.trans(p), grad)
        steep = ds.to(k.dtype)
        dk += dot(tl.trans(steep), q)
        if F.bias or F.key:
            whole = plus(tl.trans(steep), ones, whole)
        dq = dot(steep, k)
        if F.query:
            dq += tl.sum(ds, 1)[:, None] * end[None, :]
        add(place(total_, b, h, m0), site.queries - m0, dq, F.M, F.D, F.BD)
    row = site.pad if SIDE == 0 else site.pad + site.high - site.low
    spot = spots(slabs, share, h, row)
    d, by_key = tl.arange(0, F.BD), tl.sum(whole, 1) * (1.0 / ONES)
    if F.bias:
        tl.atomic_add(spot[0], tl.sum(by_key, 0), sem="relaxed")
    if F.query:
        tl.atomic_add(spot[1] + d, tl.sum(dk, 0), mask=d < F.T, sem="relaxed")
    if F.key:
        dk += by_key[:, None] * last(given.key, h, SIDE, site, F)[None, :]
        met = tl.sum(by_key[:, None] * k.to(tl.float32), 0)
        tl.atomic_add(spot[2] + d, met, mask=d < F.T, sem="relaxed")
    return own + dk, dv


@triton.jit
def once(q_, pair, grads, made, sums, given, site, F: tl.constexpr):
    """made: dk and dv; grads: grad, out, lse, delta, the library's dk and dv; sums: of the rest."""
    k_, v_ = pair
    dk_, dv_ = made
    first, bg = tl.program_id(0) * F.N, tl.program_id(1)
    b, g = bg // (site.heads // site.group), bg % (site.heads // site.group)
    left = site.keys - first
    share = (tl.program_id(0) + b) % sums[2]  # programs that run together add apart
    shelves = shelf(given.scratch, 0, NUMBERS), cleared(given.scratch)
    k = rows(k_, place(k_, b, g, first), left, F.N, F.D, F.BD)
    v = rows(v_, place(v_, b, g, first), left, F.N, F.E, F.BE)
    dk = tl.full((F.N, F.BD), 0.0, tl.float32)
    dv = tl.full((F.N, F.BE), 0.0, tl.float32)
    bounds = query_range(first, 0, site, F)
    for i in range(0, site.group):
        at = b, g * site.group + i, first, share
        for side in tl.static_range(3):  # beyond the high end, between, beyond the low end
            span, held = (bounds[side], bounds[side + 1]), (dk, dv, sums[0], sums[1])
            if side == 1:
                dk, dv = near((q_, grads), (k, v), held, given, at, shelves, span, site, F)
            elif (side == 0 and F.right) or (side == 2 and F.left):
                dk, dv = beyond((q_, grads), (k, v), held, given, at, span, site, F, 2 - side)
    dk *= site.scale
    if F.other:
        dk, dv = early(grads[4], grads[5], (b, g, first), dk, dv, site, F)
    put(dk_, place(dk_, b, g, first), left, dk, F.N, F.D, F.BD)
    put(dv_, place(dv_, b, g, first), left, dv, F.N, F.E, F.BE)
