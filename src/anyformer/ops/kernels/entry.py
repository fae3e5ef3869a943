"""The kernel that sums the vectors of a token and of its place."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit
def entry(ids_, places_, tables, out_, site, S: tl.constexpr):
    """One row: ids (B,), places (1 or B,), tables of tokens and of places (…, WIDE), out (B, WIDE).

    What comes next may start at once: it waits for this kernel itself.
    """
    if S.EARLY:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()
    b, d = tl.program_id(0), tl.arange(0, S.BLOCK)
    here = d < S.WIDE
    token = tl.load(ids_ + b).to(tl.int64)
    place = tl.maximum(tl.load(places_ + b * site.apart), 0).to(tl.int64) + site.offset
    x = tl.load(tables[0] + token * S.WIDE + d, mask=here, other=0.0).to(tl.float32)
    x += tl.load(tables[1] + place * S.WIDE + d, mask=here, other=0.0).to(tl.float32)
    tl.store(out_ + b.to(tl.int64) * S.WIDE + d, x, mask=here)
