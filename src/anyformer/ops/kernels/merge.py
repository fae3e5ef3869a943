"""What the library did of rows, for kernels that do the rest: read and added on the way.

The library's queries are those from site.width on, its keys all but as many at the end.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import LOG2E, place, rows


@triton.jit
def late(x, b, h, first, site, SIZE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The library's rows for queries from the first of a tile on, (SIZE, BLOCK); 0 for others."""
    n, d = first - site.width + tl.arange(0, SIZE), tl.arange(0, BLOCK)
    seen = ((n >= 0) & (n < site.queries - site.width))[:, None] & (d < WIDE)[None, :]
    at = place(x, b, h, 0) + tl.cast(n, tl.int64)[:, None] * x.n + d[None, :]
    return tl.load(at, mask=seen, other=0.0).to(tl.float32)


@triton.jit
def early(dk_, dv_, at, dk, dv, site, F: tl.constexpr):
    """The gradients of a tile's keys and values with the library's; it has none of the last keys.

    Those are near to all queries that see them.
    """
    b, h, first = at
    left = site.keys - site.width - first
    dk += rows(dk_, place(dk_, b, h, first), left, F.N, F.D, F.BD).to(tl.float32)
    dv += rows(dv_, place(dv_, b, h, first), left, F.N, F.E, F.BE).to(tl.float32)
    return dk, dv


@triton.jit
def merged(other, at, out, lse, gain, site, F: tl.constexpr):
    """A tile's output and log-sum-exp in units of log 2, with the library's part of its rows.

    other: the library's output (B, H, N, E) and log-sum-exp (B, H, N) in units of 1, and where that
    of the whole is written down as the library counts, which knows nothing of the gain of a row.
    """
    b, h, first = at
    row = first - site.width + tl.arange(0, F.M)
    seen = (row >= 0) & (row < site.queries - site.width)
    more = tl.load(place(other[1], b, h, 0) + row * other[1].n, mask=seen, other=float("-inf"))
    more = more * LOG2E + gain
    lse = tl.where(lse == float("inf"), 0.0, lse)  # of no row: queries see themselves at least
    top = tl.maximum(lse, more)
    a, z = tl.exp2(lse - top), tl.exp2(more - top)
    out *= (a / (a + z))[:, None]
    out += late(other[0], b, h, first, site, F.M, F.E, F.BE) * (z / (a + z))[:, None]
    found = top + tl.log2(a + z)
    if F.query:
        m = tl.arange(0, F.M)
        tl.store(place(other[2], b, h, first) + m, found - gain, mask=m < site.queries - first)
    return out, found
