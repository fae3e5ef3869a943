"""The gradients of the tables: a program for each diagonal of tiles, which all read the same rows.

Along a diagonal the gradients of the scores add up place by place in registers, and are summed by
distance once, at its end; nothing is added to memory that another program writes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.keys import asked
from anyformer.ops.kernels.tile import (
    dot,
    hidden,
    near_score,
    place,
    put,
    rows,
    spread,
    weights,
)


@triton.jit(do_not_specialize=["least_shift", "batch"])
def tables(q_, k_, v_, grads, slabs, extra, least_shift, batch, site, F: tl.constexpr):
    """slabs: bias (S, H, C, L), query and key (S, H, C, L, T), float32, for S shares of the work.

    least_shift: the first diagonal (key tile - query tile).
    """
    c, h, share = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    shift = least_shift + c
    m, n, tt = tl.arange(0, F.M), tl.arange(0, F.N), tl.arange(0, F.M + F.N)
    begin = tl.maximum(-shift, 0)
    stop = tl.minimum((site.queries + F.M - 1) // F.M, (site.keys + F.N - 1) // F.N - shift)
    count = tl.maximum(stop - begin, 0)
    work = count * batch
    each = (work + tl.num_programs(2) - 1) // tl.num_programs(2)
    least = shift * F.M - site.start - F.M + 1
    away = least + F.M - 1 + n[None, :] - m[:, None]
    total = tl.full((F.M, F.N), 0.0, tl.float32)
    by_query = tl.full((F.M + F.N, F.BD), 0.0, tl.float32)
    by_key = tl.full((F.M + F.N, F.BD), 0.0, tl.float32)
    for step in range(share * each, tl.minimum(work, share * each + each)):
        b, m0 = step // count, (begin + step % count) * F.M
        p0 = m0 + shift * F.M
        q, grad, lse, delta, bound = asked(q_, grads, extra, (b, h, m0), site, F)
        j = site.lead + p0
        k = rows(k_, place(k_, b, h // site.group, j), site.keys - p0, F.N, F.D, F.BD)
        v = rows(v_, place(v_, b, h // site.group, j), site.keys - p0, F.N, F.E, F.BE)
        s = near_score(q, k, extra, h, away, least, site, F, False)
        keep = extra[3].at + tl.cast(b, tl.int64) * extra[3].b
        s = hidden(s, away, p0 + n[None, :], keep, site, F, True)
        _, steep = weights(s, lse[:, None], bound[:, None], F)
        ds = steep * (dot(grad, tl.trans(v)) - delta[:, None])
        if F.bias:
            total += ds
        if F.query:
            rowwise = spread(ds, tt[None, :] + m[:, None] - (F.M - 1), F.N, 1)
            by_query += dot(tl.trans(rowwise).to(q.dtype), q)
        if F.key:
            columnwise = spread(ds, n[None, :] + (F.M - 1) - tt[:, None], F.M, 0)
            by_key += dot(columnwise.to(k.dtype), k)
    if F.bias:
        found = tl.sum(spread(total, tt[None, :] + m[:, None] - (F.M - 1), F.N, 1), 0)
        tl.store(place(slabs[0], share, h, c) + tt, found)
    if F.query:
        put(slabs[1], _slice(slabs[1], share, h, c, F), F.M + F.N, by_query, F.M + F.N, F.T, F.BD)
    if F.key:
        put(slabs[2], _slice(slabs[2], share, h, c, F), F.M + F.N, by_key, F.M + F.N, F.T, F.BD)


@triton.jit
def _slice(x, share, h, c, F: tl.constexpr):
    """Where the rows of a diagonal are written."""
    return place(x, share, h, c * (F.M + F.N))
