"""The forward kernel: a program for each tile of queries, online over tiles of keys."""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.merge import merged
from anyformer.ops.kernels.norms import reach
from anyformer.ops.kernels.scores import far_query, far_score, lean_score, near_score
from anyformer.ops.kernels.tile import (
    ENTMAX,
    LOG2E,
    TOP,
    bounds_of,
    dot,
    hidden,
    key_range,
    place,
    put,
    rows,
    steps,
    turn,
    weights,
)


@triton.jit
def softer(state, s, v, bound, F: tl.constexpr):
    """One step of the online softmax: sum of values, largest score, sum of weights.

    Entmax's weights are known from the start: there the values are summed by weight and by its
    root, whose sum is the last.
    """
    acc, more, top, total = state
    if F.weigh == ENTMAX:
        p, root = weights(s, bound[:, None], bound[:, None], F)
        acc += dot(p.to(v.dtype), v)
        more += dot(root.to(v.dtype), v)
        total += tl.sum(root, 1)
    else:
        if F.weigh == TOP:
            s = tl.where(s >= bound[:, None], s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(s - safe[:, None])
        shrink = tl.exp2(top - safe)
        acc = acc * shrink[:, None] + dot(p.to(v.dtype), v)
        top, total = new, total * shrink + tl.sum(p, 1)
    return acc, more, top, total


@triton.jit
def begun(extra, b, h, first, site, F: tl.constexpr):
    """The bounds of a tile's rows, and what its sums begin with."""
    acc = tl.full((F.M, F.BE), 0.0, tl.float32)
    top = tl.full((F.M,), float("-inf"), tl.float32)
    total = tl.full((F.M,), 0.0, tl.float32)
    more, bound = total, bounds_of(extra[4], b, h, first, site.queries - first, F)
    if F.weigh == ENTMAX:
        more = tl.full((F.M, F.BE), 0.0, tl.float32)
        m = tl.arange(0, F.M)
        at = place(extra[4], b, h, first) + m
        bound = tl.load(at, mask=m < site.queries - first, other=float("inf"))
    return bound, (acc, more, top, total)


@triton.jit
def forward(q_, k_, v_, outs, lse_, extra, site, F: tl.constexpr, LEAD: tl.constexpr):
    """out (B, H, Q, E) and lse (B, H, Q) in units of log 2; extra as Work makes it.

    Of entmax, outs has the mean of the values by the roots of the weights as well, and no lse;
    where the library has a part of the rows, its output, its lse, and that of all as it counts.
    """
    first, bh = turn(F), tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    g = h // site.group
    n = tl.arange(0, F.N)
    q = rows(q_, place(q_, b, h, first), site.queries - first, F.M, F.D, F.BD)
    keep = extra[3].at + tl.cast(b, tl.int64) * extra[3].b
    bound, state = begun(extra, b, h, first, site, F)
    if LEAD:
        for j in range(0, site.lead, F.N):
            k = rows(k_, place(k_, b, g, j), site.lead - j, F.N, F.D, F.BD)
            v = rows(v_, place(v_, b, g, j), site.lead - j, F.N, F.E, F.BE)
            s = dot(q, tl.trans(k)) * (site.scale * LOG2E)
            s = tl.where((j + n < site.lead)[None, :], s, float("-inf"))
            state = softer(state, s, v, bound, F)
    bounds = key_range(first, reach(extra[6], extra[5], b, h, site, F), site, F)
    for side in tl.static_range(3):  # beyond the low end, between, beyond the high end
        if side == 1 or (side == 0 and F.left) or (side == 2 and F.right):
            if side != 1:
                row = 0 if side == 0 else site.high - site.low
                more = far_query(q, extra, h, row, site, F)
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
                    s = far_score((q, k), more, extra, h, away, site, F, side, False)
                s = hidden(s, away, p0 + n[None, :], keep, site, F, side == 1)
                state = softer(state, s, v, bound, F)
    gain = 0.0
    if F.other and F.query:
        gain = far_query(q, extra, h, 0, site, F)
    finish(outs, lse_, (b, h, first), state, gain, site, F)


@triton.jit
def finish(outs, lse_, at, state, gain, site, F: tl.constexpr):
    """Divide the sums and write them down; rows that saw nothing get 0 and a lse that hides all.

    gain: what the library's scores of a row lack.
    """
    b, h, first = at
    acc, more, top, total = state
    m, left = tl.arange(0, F.M), site.queries - first
    none = total == 0
    whole = tl.where(none, 1.0, total)
    if F.weigh == ENTMAX:
        put(outs[0], place(outs[0], b, h, first), left, acc, F.M, F.E, F.BE)
        put(outs[1], place(outs[1], b, h, first), left, more / whole[:, None], F.M, F.E, F.BE)
    else:
        out = acc / whole[:, None]
        lse = tl.where(none, float("inf"), top + tl.log2(whole))
        if F.other:
            out, lse = merged((outs[1], outs[2], outs[3]), at, out, lse, gain, site, F)
        put(outs[0], place(outs[0], b, h, first), left, out, F.M, F.E, F.BE)
        tl.store(place(lse_, b, h, first) + m, lse, mask=m < left)
