"""Kernel that puts three gradients side by side, and sums their rows on the way.

Letters: T rows, F width of all three, P programs. A program has C columns of many rows, R at a
time.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def moved(from_, out_, parts_, tile, width, first, site, S: tl.constexpr):
    """Columns of one gradient (T, width) to their place in all, and sums of a program's rows."""
    c = tile * S.C + tl.arange(0, S.C)
    total = tl.full((S.R, S.C), 0.0, tl.float32)
    start = tl.program_id(1).to(tl.int64) * site.each
    for i in range(0, site.each, S.R):
        r = start + i + tl.arange(0, S.R)
        there = (r < site.rows)[:, None] & (c < width)[None, :]
        x = tl.load(from_ + r[:, None] * width + c[None, :], mask=there, other=0.0)
        tl.store(out_ + r[:, None] * site.width + (first + c)[None, :], x, mask=there)
        total += x.to(tl.float32)
    to = tl.program_id(1) * site.width + first + c
    tl.store(parts_ + to, tl.sum(total, 0), mask=c < width)


@triton.jit
def joined(a_, b_, c_, out_, parts_, site, S: tl.constexpr):
    """Three gradients side by side (T, F), and for each program the sum of its rows (P, F)."""
    tile = tl.program_id(0)
    ahead = (site.a + S.C - 1) // S.C
    both = ahead + (site.b + S.C - 1) // S.C
    if tile < ahead:
        moved(a_, out_, parts_, tile, site.a, 0, site, S)
    elif tile < both:
        moved(b_, out_, parts_, tile - ahead, site.b, site.a, site, S)
    else:
        rest = site.width - site.a - site.b
        moved(c_, out_, parts_, tile - both, rest, site.a + site.b, site, S)
