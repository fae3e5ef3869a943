"""Kernel of the gradient of a norm on a stream that goes on beside it.

Letters: T rows, F width, P programs. A program has whole rows, R at a time, of at most C columns.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def backward(grad_, kept_, given, out_, low_, parts_, site, S: tl.constexpr):
    """The gradient of the stream x (T, F), and for each program sums of its rows (P, 4 or 2, F).

    grad is that of the norm's output, kept that of the stream behind the norm. Sums are those for
    weight and bias, then of what is written and of what was kept.
    """
    c = tl.arange(0, S.C)
    wide = c < site.width
    weight = tl.load(given.weight + c, mask=wide, other=0.0).to(tl.float32)[None, :]
    by_weight = tl.full((S.R, S.C), 0.0, tl.float32)
    by_bias, written, came = by_weight, by_weight, by_weight
    first, step = tl.program_id(0) * S.R, tl.num_programs(0) * S.R
    for i in tl.range(first, site.rows, step, num_stages=S.STAGES):
        r = i + tl.arange(0, S.R)
        at = r.to(tl.int64)[:, None] * site.width + c[None, :]
        there = (r < site.rows)[:, None] & wide[None, :]
        x = tl.load(given.x + at, mask=there, other=0.0).to(tl.float32)
        grad = tl.load(grad_ + at, mask=there, other=0.0).to(tl.float32)
        kept = tl.load(kept_ + at, mask=there, other=0.0).to(tl.float32)
        root = tl.load(given.root + r, mask=r < site.rows, other=0.0)[:, None]
        if S.CENTRED:
            x -= tl.load(given.mean + r, mask=r < site.rows, other=0.0)[:, None]
        even = x * root
        own = grad * weight
        turned = even * (tl.sum(own * even, 1) / site.width)[:, None]
        if S.CENTRED:
            turned += (tl.sum(own, 1) / site.width)[:, None]
        by_weight += grad * even
        out = kept + (own - turned) * root
        tl.store(out_ + at, out, mask=there)
        if S.LOW:
            tl.store(low_ + at, out, mask=there)
        if S.CENTRED:
            by_bias += grad
        if S.SUMS:
            written += out
            came += kept
    to = tl.program_id(0) * (4 if S.SUMS else 2) * site.width + c
    tl.store(parts_ + to, tl.sum(by_weight, 0), mask=wide)
    tl.store(parts_ + to + site.width, tl.sum(by_bias, 0), mask=wide)
    if S.SUMS:
        tl.store(parts_ + to + 2 * site.width, tl.sum(written, 0), mask=wide)
        tl.store(parts_ + to + 3 * site.width, tl.sum(came, 0), mask=wide)
