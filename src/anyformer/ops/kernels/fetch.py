"""Rows that the next tile reads, asked for before this one waits: they come as far as a cache.

For kernels whose shelves leave no room for loads that are pipelined. A processor's first cache is
what shared memory leaves of it, and a few tiles fit.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import INTERPRETED, place

NEAR = tl.constexpr("prefetch.global.L1 [$1]; mov.b32 $0, 0;")


@triton.jit
def of_rows(at, stride, left, n):
    """The addresses of rows n, the last one's for those that aren't there."""
    return (at + tl.minimum(n, left - 1) * stride).to(tl.int64)


@triton.jit
def ask(one, two, SIZE: tl.constexpr):
    """Ask for the first 128 bytes of SIZE rows each of two; an address, a stride and a count."""
    if not INTERPRETED:
        i = tl.arange(0, 2 * SIZE)
        n = i % SIZE
        at = tl.where(
            i < SIZE, of_rows(one[0], one[1], one[2], n), of_rows(two[0], two[1], two[2], n)
        )
        tl.inline_asm_elementwise(NEAR, "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def next_pair(x, y, at, count, SIZE: tl.constexpr):
    """Ask for rows of x and y from a place on; at: batch row, head and first row."""
    b, h, n = at
    ask((place(x, b, h, n), x.n, count - n), (place(y, b, h, n), y.n, count - n), SIZE)


@triton.jit
def next_blocks(given, h, row, site, F: tl.constexpr):
    """Ask for N rows of each table; where there is one, for those twice."""
    count, at = site.high - site.low + 1 + 2 * site.pad, (h * 0, h, row)
    if F.query and F.key:
        next_pair(given.query, given.key, at, count, F.N)
    elif F.query:
        next_pair(given.query, given.query, at, count, F.N)
    else:
        next_pair(given.key, given.key, at, count, F.N)
