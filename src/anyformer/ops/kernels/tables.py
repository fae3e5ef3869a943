"""The gradients of the tables: a program for each diagonal of tiles, which all read the same rows.

Along a diagonal the gradients of the scores add up place by place in registers, and are summed by
distance once, at its end; nothing is added to memory that another program writes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.keys import asked
from anyformer.ops.kernels.scores import near_score
from anyformer.ops.kernels.tile import anew, dot, hidden, place, put, rows, steps, weights
from anyformer.ops.kernels.vectors import spread


@triton.jit(do_not_specialize=["least_shift", "batch"])
def tables(given, grads, slabs, extra, least_shift, batch, site, F: tl.constexpr):
    """slabs: bias (S, H, C, L), query and key (S, H, C, L, T), float32, for S shares of the work.

    given: q, k and v; least_shift: the first diagonal (key tile - query tile).
    """
    q_, k_, v_ = given
    c, h, share = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    shift = least_shift + c
    n = tl.arange(0, F.N)
    begin = tl.maximum(-shift, 0)
    stop = tl.minimum((site.queries + F.M - 1) // F.M, (site.keys + F.N - 1) // F.N - shift)
    count = tl.maximum(stop - begin, 0)
    work = count * batch
    each = (work + tl.num_programs(2) - 1) // tl.num_programs(2)
    least = shift * F.M - site.start - F.M + 1
    total = tl.full((F.M, F.N), 0.0, tl.float32)
    none = tl.full((F.N, F.BD), 0.0, tl.float32)
    query_low, query_high, key_low, key_high = none, none, none, none
    for step in range(share * each, tl.minimum(work, share * each + each)):
        b, m0 = step // count, (begin + step % count) * F.M
        p0 = m0 + shift * F.M
        q, grad, lse, delta, bound = asked(q_, grads, extra[4], (b, h, m0), site, F)
        j = site.lead + p0
        k = rows(k_, place(k_, b, h // site.group, j), site.keys - p0, F.N, F.D, F.BD)
        v = rows(v_, place(v_, b, h // site.group, j), site.keys - p0, F.N, F.E, F.BE)
        here = least + anew()
        away = steps(here, F, False)
        s = near_score(q, k, extra, h, away, here, site, F, False)
        keep = extra[3].at + tl.cast(b, tl.int64) * extra[3].b
        s = hidden(s, away, p0 + n[None, :], keep, site, F, True)
        dp = dot(grad, tl.trans(v))
        _, steep = weights(s, lse[:, None], bound[:, None], F)
        ds = steep * (dp - delta[:, None])
        if F.bias:
            total += ds
        if F.query:
            low, high = spread(ds.to(q.dtype), F, 1, False)
            query_low += dot(tl.trans(low), q)
            query_high += dot(tl.trans(high), q)
        if F.key:
            low, high = spread(ds.to(q.dtype), F, 0, True)
            key_low += dot(low, k)
            key_high += dot(high, k)
    if F.bias:
        low, high = spread(total, F, 1, False)
        at = place(slabs[0], share, h, c)
        tl.store(at + n, tl.sum(low, 0))
        tl.store(at + F.N + n, tl.sum(high, 0))
    at = c * 2 * F.N
    if F.query:
        put(slabs[1], place(slabs[1], share, h, at), F.N, query_low, F.N, F.T, F.BD)
        put(slabs[1], place(slabs[1], share, h, at + F.N), F.N, query_high, F.N, F.T, F.BD)
    if F.key:
        put(slabs[2], place(slabs[2], share, h, at), F.N, key_low, F.N, F.T, F.BD)
        put(slabs[2], place(slabs[2], share, h, at + F.N), F.N, key_high, F.N, F.T, F.BD)
