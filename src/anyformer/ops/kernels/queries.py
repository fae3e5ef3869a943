"""The gradient of the queries: a program for each tile of them, over tiles of keys.

Beside dq it writes what the other kernels need: delta, the sum of out · grad of each row, and the
sums of the score gradients at and beyond the ends of the tables, from which the gradients of
their first and last rows follow, and by distance, from which that of the slope does.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.merge import late
from anyformer.ops.kernels.norms import reach
from anyformer.ops.kernels.scores import far_query, far_score, lean_score, near_score
from anyformer.ops.kernels.tile import (
    LEARNED,
    LOG2E,
    at_ends,
    beyond,
    bounds_of,
    dot,
    end,
    hidden,
    key_range,
    place,
    put,
    rows,
    steps,
    turn,
    weights,
)
from anyformer.ops.kernels.vectors import given


@triton.jit
def score_grad(s, v, grad, stats, F: tl.constexpr):
    """The gradient of the scores s (M, N), and what it is in proportion to.

    stats: lse, delta and bound of each row.
    """
    lse, delta, bound = stats
    dp = dot(grad, tl.trans(v))  # before the exponentials, so that it runs beside them
    _, steep = weights(s, lse[:, None], bound[:, None], F)
    return steep * (dp - delta[:, None]), steep


@triton.jit
def fell(fall, ds, steep, away, F: tl.constexpr, SIDE: tl.constexpr):
    """Sums of rows (M,) with those of a tile: ds and steep by -|k - q|, ds and steep alone.

    The first is the gradient of the slope, and the third is 0 but for delta, which is made of an
    output in 16 bits. What that does to the first, the others tell. SIDE 3 has no distances.
    """
    ds_by, steep_by, ds_all, steep_all = fall
    ds_here, steep_here = tl.sum(ds, 1), tl.sum(steep, 1)
    mine, theirs = away[0].to(tl.float32), away[1].to(tl.float32)
    if SIDE == 1:
        far = -tl.abs(mine[:, None] + theirs[None, :])
        ds_by += tl.sum(ds * far, 1)
        steep_by += tl.sum(steep * far, 1)
    if SIDE == 0 or SIDE == 2:
        ds_far = mine * ds_here + tl.sum(ds * theirs[None, :], 1)
        steep_far = mine * steep_here + tl.sum(steep * theirs[None, :], 1)
        ds_by += ds_far if SIDE == 0 else -ds_far
        steep_by += steep_far if SIDE == 0 else -steep_far
    return ds_by, steep_by, ds_all + ds_here, steep_all + steep_here


@triton.jit
def lead_part(q, grad, stats, fall, k_, v_, heads, site, F: tl.constexpr):
    """What persistent keys give to dq, unscaled, (M, BD), and to the sums of `fell`."""
    b, g = heads
    acc = tl.full((F.M, F.BD), 0.0, tl.float32)
    n = tl.arange(0, F.N)
    for j in range(0, site.lead, F.N):
        k = rows(k_, place(k_, b, g, j), site.lead - j, F.N, F.D, F.BD)
        v = rows(v_, place(v_, b, g, j), site.lead - j, F.N, F.E, F.BE)
        s = dot(q, tl.trans(k)) * (site.scale * LOG2E)
        s = tl.where((j + n < site.lead)[None, :], s, float("-inf"))
        ds, steep = score_grad(s, v, grad, stats, F)
        acc += dot(ds.to(k.dtype), k)
        if F.slope == LEARNED:
            fall = fell(fall, ds, steep, (n, n), F, 3)
    return acc, fall


@triton.jit
def row_stats(grads, b, h, first, site, F: tl.constexpr):
    """grad (M, BE), lse and delta (M,) of a tile of queries; delta is written down."""
    m, left = tl.arange(0, F.M), site.queries - first
    grad = rows(grads[0], place(grads[0], b, h, first), left, F.M, F.E, F.BE)
    out = rows(grads[1], place(grads[1], b, h, first), left, F.M, F.E, F.BE)
    lse = tl.load(place(grads[2], b, h, first) + m, mask=m < left, other=float("inf"))
    delta = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(place(grads[3], b, h, first) + m, delta, mask=m < left)
    return grad, lse, delta


@triton.jit
def put_sums(grads, at, below, above, fall, left, F: tl.constexpr):
    """Write down the sums beyond the ends that there are, and by distance for the slope."""
    b, h, first = at
    m = tl.arange(0, F.M)
    if F.left and (F.bias or F.query):
        tl.store(place(grads[4], b, h, first) + m, below, mask=m < left)
    if F.right and (F.bias or F.query):
        tl.store(place(grads[5], b, h, first) + m, above, mask=m < left)
    if F.slope == LEARNED:
        ds_by, steep_by, ds_all, steep_all = fall
        found = ds_by - ds_all * steep_by / tl.where(steep_all > 0, steep_all, 1.0)
        tl.store(place(grads[8], b, h, first) + m, found, mask=m < left)


@triton.jit
def queries(q_, k_, v_, grads, dq_, extra, site, F: tl.constexpr, LEAD: tl.constexpr):
    """grads: grad, out (B, H, Q, E); lse (B, H, Q), and what Sums has room for, to be filled."""
    first, bh = turn(F), tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    g = h // site.group
    n = tl.arange(0, F.N)
    q = rows(q_, place(q_, b, h, first), site.queries - first, F.M, F.D, F.BD)
    grad, lse, delta = row_stats(grads, b, h, first, site, F)
    stats = (lse, delta, bounds_of(extra[4], b, h, first, site.queries - first, F))
    keep = extra[3].at + tl.cast(b, tl.int64) * extra[3].b
    acc = tl.full((F.M, F.BD), 0.0, tl.float32)
    below = tl.full((F.M,), 0.0, tl.float32)
    above = tl.full((F.M,), 0.0, tl.float32)
    fall = (below, below, below, below)
    if LEAD:
        acc, fall = lead_part(q, grad, stats, fall, k_, v_, (b, g), site, F)
    undo = 1 / site.scale  # what comes from the table isn't scaled, as all of dq is at the end
    bounds = key_range(first, reach(extra[6], extra[5], b, h, site, F), site, F)
    for side in tl.static_range(3):  # beyond the low end, between, beyond the high end
        if side == 1 or (side == 0 and F.left) or (side == 2 and F.right):
            if side != 1:
                row = 0 if side == 0 else site.high - site.low
                plus = far_query(q, extra, h, row, site, F)
            whole = tl.full((F.M,), 0.0, tl.float32)
            for t in tl.range(bounds[side], bounds[side + 1], num_stages=F.stages[side]):
                p0 = t * F.N
                k = rows(k_, place(k_, b, g, site.lead + p0), site.keys - p0, F.N, F.D, F.BD)
                v = rows(v_, place(v_, b, g, site.lead + p0), site.keys - p0, F.N, F.E, F.BE)
                least = p0 - first - site.start - F.M + 1
                away = steps(least, F, False)
                if side == 1 and F.lean:
                    s = lean_score(q, k, extra, (b, h, first, p0), away, site, F, False)
                elif side == 1:
                    s = near_score(q, k, extra, h, away, least, site, F, False)
                else:
                    s = far_score((q, k), plus, extra, h, away, site, F, side, False)
                s = hidden(s, away, p0 + n[None, :], keep, site, F, side == 1)
                ds, steep = score_grad(s, v, grad, stats, F)
                acc += dot(ds.to(k.dtype), k)
                if side == 1 and F.query:
                    acc = given(acc, ds, extra, (b, h, first, p0), least, site, F, False)
                if F.slope == LEARNED:
                    fall = fell(fall, ds, steep, away, F, side)
                if F.bias or F.query:
                    sums = (whole, below, above)
                    whole, below, above = beyond(ds, away, sums, site, F, side == 1)
            if side != 1 and F.query and not F.slant:
                last = end(extra[1], h, row, F).to(tl.float32)
                acc += (whole * undo)[:, None] * last[None, :]
            if side == 0:
                below += whole
            if side == 2:
                above += whole
    if F.query and F.slant:
        acc += at_ends(extra[1], h, below, above, site, F) * undo
    put_sums(grads, (b, h, first), below, above, fall, site.queries - first, F)
    acc *= site.scale
    if F.other:  # the library's dq, which dk and dv follow
        acc += late(grads[9], b, h, first, site, F.M, F.D, F.BD)
    put(dq_, place(dq_, b, h, first), site.queries - first, acc, F.M, F.D, F.BD)
