"""What all kernels share: their arguments, loads, masks and ranges.

Letters: B batch, H heads, G key heads, M queries and N keys of a tile, D head size, E value size,
T width of the tables, L = M + N rows of a table that a tile reads. Scores are in units of log 2, so
that weights are powers of two. Keys are counted from the first that isn't persistent; tile row m
and column n stand at the distance first + n - m.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
HALF = tl.constexpr(0.34657359027997264)  # of a score as entmax-1.5 takes it, in units of 1
LEARNED = tl.constexpr(2)  # Form.slope, which is 1 where it doesn't learn
SOFTMAX, TOP, ENTMAX = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # Form.weigh
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


class View(NamedTuple):
    """A tensor whose last axis lies close: its address and the strides of batch, head and row."""

    at: Any
    b: int
    h: int
    n: int


class Site(NamedTuple):
    """Numbers of one call: lengths, where the queries stand, and what the ends of tables mean."""

    queries: int
    keys: int  # without persistent ones
    lead: int
    start: int
    width: int  # of the window
    low: int  # distances up to low read the first row, from high on the last
    high: int
    heads: int
    group: int  # query heads for each key head
    pad: int  # rows of the bias before that of low
    scale: float
    most: int  # scores of a row that weigh something, where there are so many at most
    channels: int = 0  # of q and k, where they are more than a tile's


class Form(NamedTuple):
    """What a kernel is compiled for: sizes of its tiles, and what the plan has."""

    M: int
    N: int
    D: int
    E: int
    T: int
    BD: int  # sizes in a tile: powers of two, at least 16
    BE: int
    causal: bool
    window: bool
    pads: bool
    even: bool  # keys fill their tiles
    bias: bool
    query: bool
    key: bool
    left: bool  # there are tiles all below low, and above high: of one side, low <= 0 <= high
    right: bool
    slope: int = 0  # whether there is one, and learns
    parts: int = 0  # of the norms by which far keys are left out (norms.py): a power of two
    weigh: int = 0
    stages: tuple[int, int, int] = (1, 1, 1)  # of loads: near tiles are between far ones
    other: bool = False  # the library has a part of the rows, which is added
    lean: bool = False  # what vectors bring to near scores is read from buffers, of slants.py
    slant: bool = False  # gradients of near scores are written down there
    full: bool = False  # queries fill their tiles; only kernels with shelves ask
    whole: bool = True  # tiles divide the channels, where they are more than a tile's


READ = tl.constexpr(
    "{ .reg .pred p; setp.lt.s32 p, $3, 0; @p st.shared.b32 [$3], $2;"
    " mov.b32 $0, 0; mov.b32 $1, 0; }"
)


@triton.jit
def place(x, b, h, n):
    """The address of row n of a head."""
    return (
        x.at + tl.cast(b, tl.int64) * x.b + tl.cast(h, tl.int64) * x.h + tl.cast(n, tl.int64) * x.n
    )


@triton.jit
def head(x, b, h):
    """The address of a head whose numbers lie close.

    Triton 3.6 forgets in a loop that a stride is 1, so it isn't asked for.
    """
    return x.at + tl.cast(b, tl.int64) * x.b + tl.cast(h, tl.int64) * x.h


@triton.jit
def rows(x, at, count, SIZE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """SIZE rows from an address on, (SIZE, BLOCK); what is beyond the count or the width is 0."""
    n, d = tl.arange(0, SIZE), tl.arange(0, BLOCK)
    seen = (n < count)[:, None]
    if WIDE != BLOCK:
        seen = seen & (d < WIDE)[None, :]
    return tl.load(at + n[:, None] * x.n + d[None, :], mask=seen, other=0.0)


@triton.jit
def lasts(x, count):
    """Read a tile of 16 bits without doing anything; count: a number that isn't below 0.

    Products read what they are given in registers for all turns of a loop. Where nothing reads it
    behind the loop, ptxas 12.8 lets other numbers have those registers from the first turn on.
    """
    if not INTERPRETED:
        tl.inline_asm_elementwise(
            READ, "=r,=r,r,r,r", [x, count], dtype=tl.int32, is_pure=False, pack=2
        )


@triton.jit
def put(x, at, count, value, SIZE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Write a tile's rows."""
    n, d = tl.arange(0, SIZE), tl.arange(0, BLOCK)
    seen = (n < count)[:, None]
    if WIDE != BLOCK:
        seen = seen & (d < WIDE)[None, :]
    tl.store(at + n[:, None] * x.n + d[None, :], value.to(x.at.dtype.element_ty), mask=seen)


@triton.jit
def table(x, h, first, site, F: tl.constexpr, SIZE: tl.constexpr):
    """The rows of a table for the distances from first on, (SIZE, BD)."""
    near = first + tl.arange(0, SIZE)
    row = tl.minimum(tl.maximum(near, site.low), site.high) - site.low
    d = tl.arange(0, F.BD)
    at = x.at + tl.cast(h, tl.int64) * x.h + row[:, None] * F.T + d[None, :]
    return tl.load(at, mask=(d < F.T)[None, :] & (row >= 0)[:, None], other=0.0)


@triton.jit
def end(x, h, row, F: tl.constexpr):
    """One row of a table, (BD,)."""
    d = tl.arange(0, F.BD)
    return tl.load(x.at + tl.cast(h, tl.int64) * x.h + row * F.T + d, mask=d < F.T, other=0.0)


@triton.jit
def at_ends(x, h, below, above, site, F: tl.constexpr):
    """What rows get through the ends of a table (rows, BD), by their sums there."""
    found = tl.full((1, 1), 0.0, tl.float32)
    if F.left:
        found += below[:, None] * end(x, h, 0, F).to(tl.float32)[None, :]
    if F.right:
        found += above[:, None] * end(x, h, site.high - site.low, F).to(tl.float32)[None, :]
    return found


@triton.jit
def dot(a, b):
    """A product with sums in float32."""
    if INTERPRETED:  # the interpreter multiplies the bits of bfloat16 as if they were integers
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def plus(a, b, c):
    """A product that is added to c."""
    if INTERPRETED:
        found = dot(a, b) + c
    else:
        found = tl.dot(a, b, c, input_precision="ieee")
    return found


@triton.jit
def anew():
    """0, of which compilers don't know that it is: so they keep in registers nothing made of it.

    Places in a tile are the same for all tiles, and would be computed once and held throughout.
    """
    if INTERPRETED:
        found = 0
    else:
        found = tl.inline_asm_elementwise(
            "mov.b32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
    return found


@triton.jit
def least(i, j, site, F: tl.constexpr):
    """The least distance of a tile, by its first query and first key."""
    return j - i - site.start - F.M + 1


@triton.jit
def steps(least, F: tl.constexpr, TURNED: tl.constexpr):
    """k - q in a tile, from the least of it on, as a sum: what its rows and its columns bring.

    The two can be compared place by place; their sum would have to be computed for each first.
    """
    m, n, first = tl.arange(0, F.M), tl.arange(0, F.N), least + F.M - 1
    if TURNED:
        found = first + n, -m
    else:
        found = first - m, n
    return found


@triton.jit
def ended(away, end, LOW: tl.constexpr):
    """Where k - q, as of steps, is at an end of the tables or beyond."""
    row, column = end - away[0][:, None], away[1][None, :]
    return column <= row if LOW else column >= row


@triton.jit
def beyond(ds, away, sums, site, F: tl.constexpr, NEAR: tl.constexpr):
    """Sums of rows of all, at and below the low end, and above the high end, with a tile's."""
    whole, below, above = sums
    if not NEAR:
        whole += tl.sum(ds, 1)
    if NEAR and F.left:
        below += tl.sum(tl.where(ended(away, site.low, True), ds, 0.0), 1)
    if NEAR and F.right:
        above += tl.sum(tl.where(ended(away, site.high, False), ds, 0.0), 1)
    return whole, below, above


@triton.jit
def hidden(s, away, p, keep, site, F: tl.constexpr, NEAR: tl.constexpr):
    """Scores with -inf where a key isn't seen: away as of steps, p the keys, broadcast.

    Far tiles lie on one side of the queries: there causality hides nothing.
    """
    if not F.even:
        s = tl.where(p < site.keys, s, float("-inf"))
    row, column = -away[0][:, None], away[1][None, :]
    if F.window:
        seen = column > row - site.width
        if not F.causal:
            seen = seen & (column < row + site.width)
        if F.causal and NEAR:
            seen = seen & (column <= row)
        s = tl.where(seen, s, float("-inf"))
    elif F.causal and NEAR:
        s = tl.where(column <= row, s, float("-inf"))
    if F.pads:
        seen = tl.load(keep + p, mask=p < site.keys, other=0)
        s = tl.where(seen != 0, s, float("-inf"))
    return s


@triton.jit
def turn(F: tl.constexpr):
    """The first query of this program's tile.

    Under a causal mask the last ones of a head come first: they have the most keys, and short
    programs fill what is left at the end.
    """
    i = tl.program_id(0)
    if F.causal:
        i = tl.num_programs(0) - 1 - i
    return i * F.M


@triton.jit
def key_range(first, reach, site, F: tl.constexpr):
    """Tiles of keys that a tile of queries meets: first, first near, first far again, end.

    Keys as far away as reach, or further, are left out; as of norms.reach.
    """
    a, z = first + site.start, first + F.M - 1 + site.start
    low, high = 0 * first, 0 * first + site.keys
    if F.parts:
        low, high = tl.maximum(a - reach + 1, 0), tl.minimum(site.keys, z + reach)
    if F.window:
        low = tl.maximum(a - site.width + 1, low)
        high = tl.minimum(high, z + site.width)
    if F.causal:
        high = tl.minimum(high, z + 1)
    begin, stop = tl.minimum(low, site.keys) // F.N, (tl.maximum(high, 0) + F.N - 1) // F.N
    one, two = begin, stop
    if F.left:
        one = tl.maximum(site.low + a + 1, 0) // F.N
        one = tl.minimum(tl.maximum(one, begin), stop)
    if F.right:
        two = (tl.maximum(site.high + z, 0) + F.N - 1) // F.N
        two = tl.minimum(tl.maximum(two, one), stop)
    return begin, one, two, stop


@triton.jit
def bounds_of(bound_, b, h, first, left, F: tl.constexpr):
    """The bounds of a tile of queries (M,), below which scores weigh nothing; no bounds: 0."""
    m = tl.arange(0, F.M)
    if F.weigh == TOP:
        bound = tl.load(head(bound_, b, h) + first + m, mask=m < left, other=float("inf"))
    else:
        bound = tl.full((F.M,), 0.0, tl.float32)
    return bound


@triton.jit
def weights(s, level, bound, F: tl.constexpr):
    """The weights of scores, and what a score's gradient is in proportion to.

    level is the log-sum-exp of a row, or entmax's τ; it and the bound are broadcast.
    """
    if F.weigh == ENTMAX:
        root = tl.maximum(s * HALF - level, 0.0)
        found = (root * root, root)
    else:
        if F.weigh == TOP:
            s = tl.where(s >= bound, s, float("-inf"))
        p = tl.exp2(s - level)
        found = (p, p)
    return found
