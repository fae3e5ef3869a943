"""The gradients of keys and values: a program for each tile of keys, over tiles of queries.

Scores stand the other way round here, keys by queries. Beside dk and dv it writes, for each head,
the sums of the score gradients of each key at and beyond the ends of the key-side table.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.merge import early
from anyformer.ops.kernels.norms import reach
from anyformer.ops.kernels.scores import far_key, far_score, lean_score, near_score
from anyformer.ops.kernels.tile import (
    LOG2E,
    at_ends,
    beyond,
    bounds_of,
    dot,
    end,
    hidden,
    place,
    put,
    rows,
    steps,
    weights,
)
from anyformer.ops.kernels.vectors import given


@triton.jit
def query_range(first, reach, site, F: tl.constexpr):
    """Tiles of queries that a tile of keys meets: first, first near, first far again, end."""
    low, high = 0 * first, 0 * first + site.queries
    if F.parts:
        low = tl.maximum(first - reach + 1 - site.start, 0)
        high = tl.minimum(high, tl.maximum(first + F.N - 1 + reach - site.start, 0))
    if F.causal:
        low = tl.maximum(first - site.start, low)
    if F.window:
        low = tl.maximum(low, first - site.width + 1 - site.start)
        high = tl.minimum(high, tl.maximum(first + F.N - 1 + site.width - site.start, 0))
    begin = tl.minimum(low, site.queries) // F.M
    stop = tl.maximum((high + F.M - 1) // F.M, begin)
    one, two = begin, stop
    if F.right:
        one = tl.maximum(first - site.start - site.high + 1, 0) // F.M
        one = tl.minimum(tl.maximum(one, begin), stop)
    if F.left:
        two = (tl.maximum(first + F.N - 1 - site.start - site.low, 0) + F.M - 1) // F.M
        two = tl.minimum(tl.maximum(two, one), stop)
    return begin, one, two, stop


@triton.jit
def asked(q_, grads, bound_, at, site, F: tl.constexpr):
    """q (M, BD), grad (M, BE), lse, delta and bound (M,) of a tile of queries."""
    b, h, first = at
    m, left = tl.arange(0, F.M), site.queries - first
    q = rows(q_, place(q_, b, h, first), left, F.M, F.D, F.BD)
    grad = rows(grads[0], place(grads[0], b, h, first), left, F.M, F.E, F.BE)
    lse = tl.load(place(grads[2], b, h, first) + m, mask=m < left, other=float("inf"))
    delta = tl.load(place(grads[3], b, h, first) + m, mask=m < left, other=0.0)
    return q, grad, lse, delta, bounds_of(bound_, b, h, first, left, F)


@triton.jit
def lead_keys(q_, k_, v_, grads, dk_, dv_, extra, site, F: tl.constexpr):
    """dk and dv of persistent keys, which have no distance and which all queries see."""
    first, bg = tl.program_id(0) * F.N, tl.program_id(1)
    b, g = bg // (site.heads // site.group), bg % (site.heads // site.group)
    k = rows(k_, place(k_, b, g, first), site.lead - first, F.N, F.D, F.BD)
    v = rows(v_, place(v_, b, g, first), site.lead - first, F.N, F.E, F.BE)
    dk = tl.full((F.N, F.BD), 0.0, tl.float32)
    dv = tl.full((F.N, F.BE), 0.0, tl.float32)
    for i in range(0, site.group):
        for m0 in range(0, site.queries, F.M):
            at = (b, g * site.group + i, m0)
            q, grad, lse, delta, bound = asked(q_, grads, extra[4], at, site, F)
            s = dot(k, tl.trans(q)) * (site.scale * LOG2E)
            dp = dot(v, tl.trans(grad))
            p, steep = weights(s, lse[None, :], bound[None, :], F)
            dv += dot(p.to(grad.dtype), grad)
            ds = steep * (dp - delta[None, :])
            dk += dot(ds.to(q.dtype), q)
    put(dk_, place(dk_, b, g, first), site.lead - first, dk * site.scale, F.N, F.D, F.BD)
    put(dv_, place(dv_, b, g, first), site.lead - first, dv, F.N, F.E, F.BE)


@triton.jit
def put_sums(grads, at, below, above, left, F: tl.constexpr):
    """Write down the sums beyond the ends that there are."""
    b, h, first = at
    n = tl.arange(0, F.N)
    if F.key and F.left:
        tl.store(place(grads[6], b, h, first) + n, below, mask=n < left)
    if F.key and F.right:
        tl.store(place(grads[7], b, h, first) + n, above, mask=n < left)


@triton.jit
def keys(q_, k_, v_, grads, dk_, dv_, extra, site, F: tl.constexpr):
    """grads: grad, out; lse, delta, below, above by query; below, above (B, H, K) to be filled."""
    first, bg = tl.program_id(0) * F.N, tl.program_id(1)
    b, g = bg // (site.heads // site.group), bg % (site.heads // site.group)
    n = tl.arange(0, F.N)
    left, j = site.keys - first, site.lead + first
    k = rows(k_, place(k_, b, g, j), left, F.N, F.D, F.BD)
    v = rows(v_, place(v_, b, g, j), left, F.N, F.E, F.BE)
    keep = extra[3].at + tl.cast(b, tl.int64) * extra[3].b
    dk = tl.full((F.N, F.BD), 0.0, tl.float32)
    dv = tl.full((F.N, F.BE), 0.0, tl.float32)
    undo = 1 / site.scale  # what comes from the table isn't scaled, as all of dk is at the end
    for i in range(0, site.group):
        h = g * site.group + i
        bounds = query_range(first, reach(extra[6], extra[5], b, h, site, F), site, F)
        below = tl.full((F.N,), 0.0, tl.float32)
        above = tl.full((F.N,), 0.0, tl.float32)
        for side in tl.static_range(3):  # beyond the high end, between, beyond the low end
            if side == 1 or (side == 0 and F.right) or (side == 2 and F.left):
                whole = tl.full((F.N,), 0.0, tl.float32)
                row = 0 if side == 2 else site.high - site.low
                ours = far_key(k, extra, h, row, F)
                for t in tl.range(bounds[side], bounds[side + 1], num_stages=F.stages[side]):
                    m0 = t * F.M
                    q, grad, lse, delta, bound = asked(q_, grads, extra[4], (b, h, m0), site, F)
                    least = first - m0 - site.start - F.M + 1
                    away = steps(least, F, True)
                    if side == 1 and F.lean:
                        s = lean_score(k, q, extra, (b, h, m0, first), away, site, F, True)
                    elif side == 1:
                        s = near_score(k, q, extra, h, away, least, site, F, True)
                    else:
                        s = far_score((k, q), ours, extra, h, away, site, F, 2 - side, True)
                    dp = dot(v, tl.trans(grad))  # early: it runs beside the exponentials
                    s = hidden(s, away, first + n[:, None], keep, site, F, side == 1)
                    p, steep = weights(s, lse[None, :], bound[None, :], F)
                    dv += dot(p.to(grad.dtype), grad)
                    ds = steep * (dp - delta[None, :])
                    dk += dot(ds.to(q.dtype), q)
                    if F.key:
                        if side == 1:
                            dk = given(dk, ds, extra, (b, h, first, m0), least, site, F, True)
                        sums = (whole, below, above)
                        whole, below, above = beyond(ds, away, sums, site, F, side == 1)
                if F.key and side != 1 and not F.slant:
                    last = end(extra[2], h, row, F).to(tl.float32)
                    dk += (whole * undo)[:, None] * last[None, :]
                if side == 2:
                    below += whole
                if side == 0:
                    above += whole
        if F.key and F.slant:
            dk += at_ends(extra[2], h, below, above, site, F) * undo
        put_sums(grads, (b, h, first), below, above, left, F)
    dk *= site.scale
    if F.other:
        dk, dv = early(grads[10], grads[11], (b, g, first), dk, dv, site, F)
    put(dk_, place(dk_, b, g, j), left, dk, F.N, F.D, F.BD)
    put(dv_, place(dv_, b, g, j), left, dv, F.N, F.E, F.BE)
