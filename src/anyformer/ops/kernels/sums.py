"""The last step of sums over rows: what programs have summed, added up.

Letters: P programs, F width. A program has C columns, R rows at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def columns(parts_, out_, site, S: tl.constexpr):
    """(P, F) -> (F,), in float32."""
    c = tl.program_id(0) * S.C + tl.arange(0, S.C)
    total = tl.full((S.R, S.C), 0.0, tl.float32)
    for i in range(0, site.rows, S.R):
        r = i + tl.arange(0, S.R)
        there = (r < site.rows)[:, None] & (c < site.width)[None, :]
        total += tl.load(parts_ + r[:, None] * site.width + c[None, :], mask=there, other=0.0)
    tl.store(out_ + c, tl.sum(total, 0), mask=c < site.width)
