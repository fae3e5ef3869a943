"""The forward kernel: a program for each tile of queries, online over tiles of keys."""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import (
    LOG2E,
    dot,
    far_query,
    hidden,
    key_range,
    near_score,
    place,
    put,
    rows,
)


@triton.jit
def softer(acc, top, total, s, v):
    """One step of the online softmax: sum of values, largest score, sum of weights."""
    new = tl.maximum(top, tl.max(s, 1))
    safe = tl.where(new == float("-inf"), 0.0, new)
    p = tl.exp2(s - safe[:, None])
    shrink = tl.exp2(top - safe)
    acc = acc * shrink[:, None] + dot(p.to(v.dtype), v)
    return acc, new, total * shrink + tl.sum(p, 1)


@triton.jit
def forward(q_, k_, v_, out_, lse_, extra, site, F: tl.constexpr, LEAD: tl.constexpr):
    """out (B, H, Q, E) and lse (B, H, Q) in units of log 2; extra: bias, query, key, keep."""
    first, bh = tl.program_id(0) * F.M, tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    g = h // site.group
    m, n = tl.arange(0, F.M), tl.arange(0, F.N)
    q = rows(q_, place(q_, b, h, first), site.queries - first, F.M, F.D, F.BD)
    keep = extra[3].at + tl.cast(b, tl.int64) * extra[3].b
    acc = tl.full((F.M, F.BE), 0.0, tl.float32)
    top = tl.full((F.M,), float("-inf"), tl.float32)
    total = tl.full((F.M,), 0.0, tl.float32)
    if LEAD:
        for j in range(0, site.lead, F.N):
            k = rows(k_, place(k_, b, g, j), site.lead - j, F.N, F.D, F.BD)
            v = rows(v_, place(v_, b, g, j), site.lead - j, F.N, F.E, F.BE)
            s = dot(q, tl.trans(k)) * (site.scale * LOG2E)
            s = tl.where((j + n < site.lead)[None, :], s, float("-inf"))
            acc, top, total = softer(acc, top, total, s, v)
    bounds = key_range(first, site, F)
    for side in tl.static_range(3):  # beyond the low end, between, beyond the high end
        if side == 1 or (side == 0 and F.left) or (side == 2 and F.right):
            if side != 1:
                row = 0 if side == 0 else site.high - site.low
                far, factor, more = far_query(q, extra, h, row, site, F)
            for t in range(bounds[side], bounds[side + 1]):
                p0 = t * F.N
                k = rows(k_, place(k_, b, g, site.lead + p0), site.keys - p0, F.N, F.D, F.BD)
                v = rows(v_, place(v_, b, g, site.lead + p0), site.keys - p0, F.N, F.E, F.BE)
                least = p0 - first - site.start - F.M + 1
                away = least + F.M - 1 + n[None, :] - m[:, None]
                if side == 1:
                    s = near_score(q, k, extra, h, away, least, site, F, False)
                else:
                    s = dot(far, tl.trans(k)) * factor + more[:, None]
                s = hidden(s, away, p0 + n[None, :], keep, site, F, side == 1)
                acc, top, total = softer(acc, top, total, s, v)
    none = total == 0
    out = acc / tl.where(none, 1.0, total)[:, None]
    put(out_, place(out_, b, h, first), site.queries - first, out, F.M, F.E, F.BE)
    lse = tl.where(none, float("inf"), top + tl.log2(tl.where(none, 1.0, total)))
    tl.store(place(lse_, b, h, first) + m, lse, mask=m < site.queries - first)
