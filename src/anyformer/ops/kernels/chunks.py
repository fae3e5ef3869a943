"""Chunks of a query's keys, with a program each, and what they tell each other.

Letters: as in `strips`; C chunks of a row, P the power of two that holds them, A heads of a tile.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.strips import span
from anyformer.ops.kernels.tile import place


@triton.jit
def turn(strip, BACK: tl.constexpr):
    """Whose turn it is: query, batch row and chunk of keys; BACK: from the last of each on."""
    i, b, c = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if BACK:
        i, b = strip.queries - 1 - i, tl.num_programs(1) - 1 - b
        c = tl.num_programs(2) - 1 - c
    return i, b, c


@triton.jit
def own(i, c, strip, F: tl.constexpr):
    """The keys that a program has of a query's row: all, or a chunk."""
    low, high = span(i, strip, F)
    if F.chunk:
        low, high = tl.maximum(low, c * F.chunk), tl.minimum(high, (c + 1) * F.chunk)
    return low, high


@triton.jit
def of_chunks(some_, b, i, other, F: tl.constexpr):
    """What the chunks of a query's row have found, (P, A); other beyond the last."""
    j, chunks = tl.arange(0, F.parts)[:, None], tl.num_programs(2)
    at = place(some_, b, i * chunks, 0) + j * some_.h + tl.arange(0, F.A)[None, :]
    return tl.load(at, mask=j < chunks, other=other)
