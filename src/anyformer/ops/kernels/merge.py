"""The kernel that merges two parts of an attention by their log-sum-exp."""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import place, put, rows


@triton.jit
def merge(out_, lse_, other_, more_, site, S: tl.constexpr):
    """Add another part to rows from site.first on, in place.

    out (B, H, N, D) and lse (B, H, N) in units of log 2, other and more the same of the rows from
    there on, more in units of 1.
    """
    m0, bh = tl.program_id(0) * S.M, tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    m = tl.arange(0, S.M)
    left = site.many - m0
    here, at = m < left, place(out_, b, h, site.first + m0)
    mine = tl.load(place(lse_, b, h, site.first + m0) + m, mask=here, other=0.0)
    more = tl.load(place(more_, b, h, m0) + m, mask=here, other=0.0) * 1.4426950408889634
    most = tl.maximum(mine, more)
    sure = tl.where(most == float("-inf"), 0.0, most)
    a, z = tl.exp2(mine - sure), tl.exp2(more - sure)
    total = tl.where(a + z > 0, a + z, 1.0)
    x = rows(out_, at, left, S.M, S.D, S.BD).to(tl.float32)
    y = rows(other_, place(other_, b, h, m0), left, S.M, S.D, S.BD).to(tl.float32)
    put(out_, at, left, x * (a / total)[:, None] + y * (z / total)[:, None], S.M, S.D, S.BD)
    tl.store(place(lse_, b, h, site.first + m0) + m, sure + tl.log2(total), mask=here)
