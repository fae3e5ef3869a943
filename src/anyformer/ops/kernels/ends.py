"""Tables by distance made longer at both ends, and sums by row of such a table folded back.

Each in one pass: of torch's own operations it takes eight and nine, and a GPU waits for each.
Sums of vectors lie as products leave them in threads, sixteen rows by eight channels to a warp, so
that what a warp adds is 512 bytes in a row.
Letters: R rows of a table, P rows added at an end, T numbers of a row, W of a row of sums, S shares
of sums. A program has N rows of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import INTERPRETED

CHUNK = tl.constexpr(16)  # rows of sums that lie together
PARTS, MOST = tl.constexpr(8), tl.constexpr(6e4)  # numbers of a bias in parts; float16 holds it


class Shape(NamedTuple):
    """What a kernel is compiled for: T, W, S, N, and the power of two that holds T."""

    T: int
    W: int
    S: int
    N: int
    BT: int


@triton.jit
def sum_places(n, d, W: tl.constexpr):
    """Where sums of row n and channel d lie, as a sum: of a thread's own, and of constants."""
    own = (n & -CHUNK) * W + (n & 7) * 16 + (d & 6) * 2
    return own, (d & -8) * CHUNK + (n & 8) // 4 + (d & 1)


@triton.jit
def sums(i, slab, known, step, F: tl.constexpr):
    """What all shares have in rows i, (len(i), BT); known: which of them there are."""
    SHARES: tl.constexpr = F.S
    n, d = i[:, None], tl.arange(0, F.BT)[None, :]
    if F.W == 1:
        at = n + d
    else:
        own, more = sum_places(n, d, F.W)
        at = own + more
    total = tl.load(slab + at, mask=known, other=0.0)
    for s in tl.static_range(1, SHARES):  # all are asked for before the first is waited for
        total += tl.load(slab + s * step + at, mask=known, other=0.0)
    return total


@triton.jit
def rounded(x, TYPE: tl.constexpr):
    """A number of float32 in a type, the nearest; Triton's interpreter cuts bfloat16 off."""
    if INTERPRETED and TYPE == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        x = (bits + ((bits >> 16) & 1) + 0x7FFF).to(tl.float32, bitcast=True)
    return x.to(TYPE)


@triton.jit
def columns(i, T: tl.constexpr, BT: tl.constexpr, rows):
    """Where rows i begin and go on, and which of their numbers there are."""
    d = tl.arange(0, BT)[None, :]
    return i[:, None] * T + d, (i < rows)[:, None] & (d < T)


@triton.jit
def longer(table, top, out_, gain, rows, P, F: tl.constexpr, TOP: tl.constexpr):
    """(H, R, T) -> (H, P + R + P, T), times gain; before, a head's number `top` is taken off."""
    h, i = tl.program_id(1), tl.program_id(0) * F.N + tl.arange(0, F.N)
    there, known = columns(i, F.T, F.BT, rows + 2 * P)
    at, _ = columns(tl.minimum(tl.maximum(i - P, 0), rows - 1), F.T, F.BT, rows)
    x = tl.load(table + tl.cast(h, tl.int64) * rows * F.T + at, mask=known, other=0.0).to(
        tl.float32
    )
    if TOP:
        x -= tl.load(top + h)
    to = out_ + tl.cast(h, tl.int64) * (rows + 2 * P) * F.T + there
    tl.store(to, rounded(x * gain, out_.dtype.element_ty), mask=known)


@triton.jit
def in_parts(x, c, FIRST: tl.constexpr, TYPE: tl.constexpr):
    """x (M,) as three numbers of 16 bits that add up to it, in channels from one on, (M, C)."""
    one = x.to(TYPE).to(tl.float32)
    two = (x - one).to(TYPE).to(tl.float32)
    found = tl.where(c == FIRST + 1, two[:, None], (x - one - two)[:, None])
    found = tl.where(c == FIRST, one[:, None], found)
    return tl.where((c >= FIRST) & (c < FIRST + 3), found, 0.0)


@triton.jit
def parted(x_, out_, count, N: tl.constexpr):
    """Numbers (count,) -> (count, PARTS), each in parts that products add up."""
    i, c = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, PARTS)[None, :]
    TYPE: tl.constexpr = out_.dtype.element_ty
    x = tl.load(x_ + i, mask=i < count, other=0.0)
    x = in_parts(tl.minimum(tl.maximum(x, -MOST), MOST), c, 0, TYPE)
    tl.store(out_ + i[:, None] * PARTS + c, x.to(TYPE), mask=(i < count)[:, None])


@triton.jit
def end(slab, first, step, P, F: tl.constexpr):
    """What all shares have in P rows from the first on, (BT,)."""
    ROWS: tl.constexpr = 4 * F.N  # at once: one program does all
    found = tl.full((F.BT,), 0.0, tl.float32)
    for n in range(0, P, ROWS):
        i = n + tl.arange(0, ROWS)
        _, known = columns(i, F.T, F.BT, P)
        found += tl.sum(sums(first + i, slab, known, step, F), 0)
    return found


@triton.jit
def folded(slab_, out_, rows, P, F: tl.constexpr):
    """(S, H, P + R + P, W) -> (H, R, T): rows beyond an end belong to the row there."""
    part, h = tl.program_id(0), tl.program_id(1)
    i = part * F.N + tl.arange(0, F.N)
    each = tl.cast((rows + 2 * P + CHUNK - 1) // CHUNK * CHUNK, tl.int64) * F.W
    slab, step = slab_ + h * each, tl.num_programs(1) * each
    at, known = columns(i, F.T, F.BT, rows)
    total = sums(P + i, slab, known, step, F)
    if part == 0:
        low = end(slab, 0, step, P, F)
        total += tl.where((i == 0)[:, None], low[None, :], 0.0)
    if part == tl.num_programs(0) - 1:
        high = end(slab, rows + P, step, P, F)
        total += tl.where((i == rows - 1)[:, None], high[None, :], 0.0)
    to = out_ + tl.cast(h, tl.int64) * rows * F.T + at
    tl.store(to, rounded(total, out_.dtype.element_ty), mask=known)
