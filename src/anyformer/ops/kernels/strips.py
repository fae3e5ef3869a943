"""Strips: scores of some queries, of all heads, in a buffer, and the products before and after it.

Letters: B batch, H heads, G key heads, R queries of the strip, K keys that it sees, D head size, M
and N queries and keys of a tile, A heads of one that has all. Buffers are (B, H, R, W), W being K
filled up to whole tiles. A block of queries in a row has the same keys there, those that one of
them may see, in whole tiles; what lies beyond is neither written nor read. So no column of a tile
is masked.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from triton.language.extra import cuda

from anyformer.ops.kernels.tile import dot, place, put, rows


class Strip(NamedTuple):
    """Numbers of one strip: its queries and keys, and where they stand."""

    queries: int
    keys: int
    first: int  # position of the first query, and of the first key: persistent ones are below 0
    low: int
    width: int  # of the window
    heads: int
    group: int  # query heads for each key head
    scale: float
    channels: int  # of q and k


class Shape(NamedTuple):
    """What a kernel is compiled for: sizes of its tiles, and what the plan has."""

    M: int
    N: int
    D: int  # widths of the first product's rows and of the second's, if there are two
    E: int
    BD: int
    BE: int
    A: int
    block: int  # queries with the same keys: tiles of queries divide it, unless they are products
    even: int  # keys at a time that they have: tiles of keys divide it
    causal: bool
    window: bool
    pads: bool
    mix: bool
    remix: bool
    jobs: int  # how many products
    adds: bool  # whether to add to what is there
    chunk: int  # keys that a program which mixes has; 0: all
    parts: int  # chunks of a row at most, a power of two
    early: bool  # whether it starts while the kernel before still runs


@triton.jit
def begin(F: tl.constexpr):
    """Let the next kernel start when all programs of this one run; wait for the one before."""
    if F.early:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()


@triton.jit
def span(m, strip, F: tl.constexpr):
    """The keys in the buffer of the block of a query: from and to, in whole tiles."""
    start = m // F.block * F.block
    last = strip.first + tl.minimum(start + F.block, strip.queries) - 1
    low, high = 0 * m, 0 * m + strip.keys
    if F.causal:
        high = tl.minimum(high, last + 1 - strip.low)
    if F.window:
        high = tl.minimum(high, last + strip.width - strip.low)
        low = tl.maximum(strip.first + start - strip.width + 1 - strip.low, 0)
        low = tl.where(strip.low < 0, 0, low)  # where persistent keys are
    high = tl.maximum(high, tl.maximum(-strip.low, 0))
    return low // F.even * F.even, (high + F.even - 1) // F.even * F.even


@triton.jit
def products(xs, ys, made, strip, F: tl.constexpr, RUN: tl.constexpr):
    """made (B, H, R, W) = x (B, H, R, D) · y (B, G, K, D): a program for RUN tiles and one job."""
    begin(F)
    wide = (strip.keys + F.even - 1) // F.even * F.even
    runs = (wide + RUN * F.N - 1) // (RUN * F.N)
    m0, run, b = tl.program_id(1) * F.M, tl.program_id(2) % runs, tl.program_id(2) // runs
    run *= RUN * F.N
    low, _ = span(m0, strip, F)
    _, high = span(tl.minimum(m0 + F.M, strip.queries) - 1, strip, F)
    low, high = tl.maximum(low, run), tl.minimum(high, run + RUN * F.N)
    at = (b, tl.program_id(0) % strip.heads, m0, low, high)
    second = tl.program_id(0) >= strip.heads
    if F.D == F.E:
        x, y, s = xs[0], ys[0], made[0]
        if F.jobs == 2 and second:
            x, y, s = xs[1], ys[1], made[1]
        multiply(x, y, s, at, strip, F, F.D, F.BD)
    elif second:
        multiply(xs[1], ys[1], made[1], at, strip, F, F.E, F.BE)
    else:
        multiply(xs[0], ys[0], made[0], at, strip, F, F.D, F.BD)


@triton.jit
def multiply(x_, y_, s_, at, strip, F: tl.constexpr, D: tl.constexpr, BD: tl.constexpr):
    """A tile of queries by some tiles of keys."""
    b, h, m0, low, high = at
    m, n = tl.arange(0, F.M), tl.arange(0, F.N)
    there = (m0 + m < strip.queries)[:, None]
    x = rows(x_, place(x_, b, h, m0), strip.queries - m0, F.M, D, BD)
    to = place(s_, b, h, m0) + m[:, None] * s_.n + n[None, :]
    for n0 in range(low, high, F.N):
        y = rows(y_, place(y_, b, h // strip.group, n0), strip.keys - n0, F.N, D, BD)
        tl.store(to + n0, dot(x, tl.trans(y)).to(s_.at.dtype.element_ty), mask=there)


@triton.jit
def tile_of(s_, b, h, m0, n0, strip, F: tl.constexpr):
    """A tile (M, N) of a buffer; 0 beyond the last query."""
    m, n = tl.arange(0, F.M), tl.arange(0, F.N)
    at = place(s_, b, h, m0) + m[:, None] * s_.n + n0 + n[None, :]
    return tl.load(at, mask=(m0 + m < strip.queries)[:, None], other=0.0)


@triton.jit
def sums(s_, y_, out_, apart, strip, shares, F: tl.constexpr, JOIN: tl.constexpr):
    """out (B, H, R, D): rows of y (B, G, K, D) summed by s, the keys cut into shares.

    apart, with JOIN: room for the sums of each share (S, B · H, R, D) in float32, and how many
    programs of a tile have come to their end, all 0. The last to come adds them, in their order.
    """
    begin(F)
    m0, bh, share = tl.program_id(0) * F.M, tl.program_id(1), tl.program_id(2)
    b, h, left = bh // strip.heads, bh % strip.heads, strip.queries - m0
    low, high = span(m0, strip, F)
    if JOIN:
        each = ((high - low) // F.N + shares - 1) // shares * F.N
        low, high = low + share * each, tl.minimum(high, low + (share + 1) * each)
    acc = tl.full((F.M, F.BD), 0.0, tl.float32)
    for n0 in range(low, high, F.N):
        y = rows(y_, place(y_, b, h // strip.group, n0), strip.keys - n0, F.N, F.D, F.BD)
        acc += dot(tile_of(s_, b, h, m0, n0, strip, F), y)
    if JOIN:
        part_, ended = apart
        put(part_, place(part_, share, bh, m0), left, acc, F.M, F.D, F.BD)
        tl.debug_barrier()  # all threads have written
        if is_last(ended + bh * tl.num_programs(0) + tl.program_id(0), shares):
            acc = tl.full((F.M, F.BD), 0.0, tl.float32)
            for j in range(0, shares, 2):  # two are asked for at a time
                one = rows(part_, place(part_, j, bh, m0), left, F.M, F.D, F.BD)
                more = tl.where(j + 1 < shares, left, 0)
                two = rows(part_, place(part_, j + 1, bh, m0), more, F.M, F.D, F.BD)
                acc = acc + one + two
            put(out_, place(out_, b, h, m0), left, acc, F.M, F.D, F.BD)
    else:
        put(out_, place(out_, b, h, m0), left, acc, F.M, F.D, F.BD)


@triton.jit
def is_last(ended, shares):
    """Count a program that has come to its end; whether all have, which sets the count back."""
    last = tl.atomic_add(ended, 1, sem="acq_rel", scope="gpu") == shares - 1
    if last:
        tl.store(ended, 0)
    return last


@triton.jit
def asking(n0, strip, F: tl.constexpr):
    """The queries that may see a tile of keys, from and to, in whole blocks: all have its place."""
    p, last = strip.low + n0, strip.queries
    low, high = 0 * n0, 0 * n0 + last
    if F.causal:
        low = tl.maximum(p - strip.first, 0)
    if F.window:
        if not F.causal:
            low = tl.maximum(p - strip.width + 1 - strip.first, 0)
        high = tl.minimum(last, tl.maximum(p + F.N - 1 + strip.width - strip.first, 0))
    low, high = tl.where(p < 0, 0, low), tl.where(p < 0, last, high)  # all see persistent keys
    return tl.minimum(low, last) // F.block * F.block, high


@triton.jit
def turned(made, xs, totals, strip, F: tl.constexpr):
    """total (B, G, K, D): the rows of x (B, H, R, D), summed by what was made, turned round."""
    begin(F)
    g = tl.program_id(0) % (strip.heads // strip.group)
    second = tl.program_id(0) > g
    if F.D == F.E:
        s, x, total = made[0], xs[0], totals[0]
        if F.jobs == 2 and second:
            s, x, total = made[1], xs[1], totals[1]
        turn(s, x, total, g, strip, F, F.D, F.BD)
    elif second:
        turn(made[1], xs[1], totals[1], g, strip, F, F.E, F.BE)
    else:
        turn(made[0], xs[0], totals[0], g, strip, F, F.D, F.BD)


@triton.jit
def turn(s_, x_, total_, g, strip, F: tl.constexpr, D: tl.constexpr, BD: tl.constexpr):
    """A tile of keys of it; what is there already is asked for first and added last."""
    t, b = tl.program_id(1), tl.program_id(2)
    n0 = (tl.num_programs(1) - 1 - t if F.chunk else t) * F.N  # in chunks the last were last made
    low, high = asking(n0, strip, F)
    to = place(total_, b, g, n0)
    acc = tl.full((F.N, BD), 0.0, tl.float32)
    if F.adds:
        there = rows(total_, to, strip.keys - n0, F.N, D, BD)
    for j in range(0, strip.group):
        h = g * strip.group + j
        for m0 in range(low, high, F.M):
            x = rows(x_, place(x_, b, h, m0), strip.queries - m0, F.M, D, BD)
            acc += dot(tl.trans(tile_of(s_, b, h, m0, n0, strip, F)), x)
    if F.adds:
        acc += there
    put(total_, to, strip.keys - n0, acc, F.N, D, BD)


@triton.jit
def heads_of(s_, b, i, n0, strip, F: tl.constexpr):
    """Where the heads of some keys of one query lie (A, N), and which of them there are."""
    a, n = tl.arange(0, F.A), tl.arange(0, F.N)
    at = place(s_, b, 0, i) + n0 + tl.cast(a, tl.int64)[:, None] * s_.h + n[None, :]
    return at, (a < strip.heads)[:, None]


@triton.jit
def loaded(s_, b, i, n0, strip, F: tl.constexpr):
    """The heads of some keys of one query, (N, A)."""
    at, inside = heads_of(s_, b, i, n0, strip, F)
    return tl.trans(tl.load(at, mask=inside, other=0.0))


@triton.jit
def stored(s_, b, i, n0, value, strip, F: tl.constexpr):
    """Put numbers (N, A) in their place."""
    at, inside = heads_of(s_, b, i, n0, strip, F)
    tl.store(at, tl.trans(value.to(s_.at.dtype.element_ty)), mask=inside)
