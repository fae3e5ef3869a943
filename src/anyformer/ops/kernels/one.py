"""The kernel for one query: a program for each key head and each share of its keys."""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import dot, place, rows


@triton.jit
def one(q_, k_, v_, added_, out_, lse_, site, S: tl.constexpr):
    """The heads of a group side by side as rows of a tile, online over tiles of keys.

    q's rows are its heads; added (B or 1, K) is 0 or -inf. A tile that nobody sees, as keys to
    come are, is not read. out (B, H, shares, E), lse (B, H, shares).
    """
    bg, part, shares = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    b, g = tl.cast(bg // S.heads, tl.int64), bg % S.heads
    m, n = tl.arange(0, S.M), tl.arange(0, S.N)
    e = tl.arange(0, S.BE)
    here, high = m < S.group, e < S.E
    q = rows(q_, place(q_, b, 0, g * S.group), S.group, S.M, S.D, S.BD)
    acc = tl.full((S.M, S.BE), 0.0, tl.float32)
    top = tl.full((S.M,), float("-inf"), tl.float32)
    total = tl.full((S.M,), 0.0, tl.float32)
    first = part * site.share
    last = tl.minimum(first + site.share, site.keys)
    for j in range(first, last, S.N):
        at = j + n
        there = at < last
        added = tl.load(added_ + b * S.apart * site.keys + at, mask=there, other=float("-inf"))
        if tl.max(added, 0) > float("-inf"):
            k = rows(k_, place(k_, b, g, j), last - j, S.N, S.D, S.BD)
            v = rows(v_, place(v_, b, g, j), last - j, S.N, S.E, S.BE)
            s = dot(q, tl.trans(k)) * site.scale + added.to(tl.float32)[None, :]
            new = tl.maximum(top, tl.max(s, 1))
            p = tl.exp(s - new[:, None])
            shrink = tl.exp(top - new)
            acc = acc * shrink[:, None] + dot(p.to(v.dtype), v)
            top, total = new, total * shrink + tl.sum(p, 1)
    sure = tl.where(total > 0, total, 1.0)
    row_ = ((b * S.heads + g) * S.group + m) * shares + part
    out = acc / sure[:, None]
    tl.store(out_ + row_[:, None] * S.E + e[None, :], out, mask=here[:, None] & high[None, :])
    tl.store(lse_ + row_, top + tl.log(sure), mask=here)
