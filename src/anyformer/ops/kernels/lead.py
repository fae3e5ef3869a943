"""Persistent keys beside the library's part of an attention: all of them are one tile.

Every query sees them and they have no distance, so a program holds them and passes by queries. Of
the library it gets what the other keys give, and adds to that on the way: rows are read once.

Letters: M queries and L persistent keys of a tile, D head size, BD the same in a tile.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import LOG2E, dot, place, put, rows


@triton.jit
def scores(q, k, site, S: tl.constexpr):
    """Scores of queries with all persistent keys (M, L), in units of log 2."""
    seen = tl.arange(0, S.L) < site.lead
    return tl.where(seen[None, :], dot(q, tl.trans(k)) * (site.scale * LOG2E), float("-inf"))


@triton.jit
def both(q_, k_, v_, part, whole, site, S: tl.constexpr):
    """Merge the library's output and log-sum-exp, `part`, with what persistent keys give.

    `whole` is where it goes, which may be the same place. Log-sum-exps are in units of 1.
    """
    first, bh = tl.program_id(0) * S.M, tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    m, left = tl.arange(0, S.M), site.queries - first
    q = rows(q_, place(q_, b, h, first), left, S.M, S.D, S.BD)
    theirs = rows(part[0], place(part[0], b, h, first), left, S.M, S.D, S.BD)
    lse = tl.load(place(part[1], b, h, first) + m * part[1].n, mask=m < left, other=0.0) * LOG2E
    k = rows(k_, place(k_, b, h, 0), site.lead, S.L, S.D, S.BD)
    v = rows(v_, place(v_, b, h, 0), site.lead, S.L, S.D, S.BD)
    s = scores(q, k, site, S)
    top = tl.maximum(lse, tl.max(s, 1))
    p, rest = tl.exp2(s - top[:, None]), tl.exp2(lse - top)
    total = rest + tl.sum(p, 1)
    out = theirs.to(tl.float32) * (rest / total)[:, None]
    out += dot(p.to(v.dtype), v) / total[:, None]
    put(whole[0], place(whole[0], b, h, first), left, out, S.M, S.D, S.BD)
    lse = (top + tl.log2(total)) / LOG2E
    tl.store(place(whole[1], b, h, first) + m * whole[1].n, lse, mask=m < left)


@triton.jit
def slopes(q_, k_, v_, grads, dq_, sums, site, S: tl.constexpr):
    """Add to the library's dq what persistent keys give, and sum up their own gradients.

    grads: grad, out and log-sum-exp, both merged. A program passes by site.rows queries, a multiple
    of M; sums are its dk and dv, (B, H · site.shares, lead, D) in float32.
    """
    share, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    m = tl.arange(0, S.M)
    k = rows(k_, place(k_, b, h, 0), site.lead, S.L, S.D, S.BD)
    v = rows(v_, place(v_, b, h, 0), site.lead, S.L, S.D, S.BD)
    dk = tl.full((S.BD, S.L), 0.0, tl.float32)  # turned: a group of four warps multiplies 64 rows
    dv = tl.full((S.BD, S.L), 0.0, tl.float32)
    begin = share * site.rows
    for first in range(begin, tl.minimum(begin + site.rows, site.queries), S.M):
        left, at = site.queries - first, place(dq_, b, h, first)
        grad = rows(grads[0], place(grads[0], b, h, first), left, S.M, S.D, S.BD)
        out = rows(grads[1], place(grads[1], b, h, first), left, S.M, S.D, S.BD)
        q = rows(q_, place(q_, b, h, first), left, S.M, S.D, S.BD)
        delta = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
        lse = place(grads[2], b, h, first) + m * grads[2].n
        lse = tl.load(lse, mask=m < left, other=float("inf")) * LOG2E
        p = tl.exp2(scores(q, k, site, S) - lse[:, None])
        dv += dot(tl.trans(grad), p.to(grad.dtype))
        ds = (p * (dot(grad, tl.trans(v)) - delta[:, None])).to(k.dtype)
        dk += dot(tl.trans(q), ds)
        theirs = rows(dq_, at, left, S.M, S.D, S.BD)
        put(dq_, at, left, theirs.to(tl.float32) + dot(ds, k) * site.scale, S.M, S.D, S.BD)
    to = h * site.shares + share
    dk = tl.trans(dk) * site.scale
    put(sums[0], place(sums[0], b, to, 0), site.lead, dk, S.L, S.D, S.BD)
    put(sums[1], place(sums[1], b, to, 0), site.lead, tl.trans(dv), S.L, S.D, S.BD)


@triton.jit
def join(parts, sums, grads, site, S: tl.constexpr):
    """dk and dv of all keys, persistent ones in front, of the library's and of what `slopes` sums.

    Sums are added in their order, by the first program of a head.
    """
    first, bh = tl.program_id(0) * S.M, tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    left = site.queries - first
    for i in tl.static_range(2):
        x = rows(parts[i], place(parts[i], b, h, first), left, S.M, S.D, S.BD)
        put(grads[i], place(grads[i], b, h, site.lead + first), left, x, S.M, S.D, S.BD)
    if first == 0:
        for i in tl.static_range(2):
            total = tl.full((S.L, S.BD), 0.0, tl.float32)
            for share in range(0, site.shares):
                at = place(sums[i], b, h * site.shares + share, 0)
                total += rows(sums[i], at, site.lead, S.L, S.D, S.BD)
            put(grads[i], place(grads[i], b, h, 0), site.lead, total, S.L, S.D, S.BD)
