"""Heads that talk: kernels over a strip of queries whose scores lie in a buffer, all heads at once.

A program that mixes has the heads of some keys of one query as rows of its tile, so that mixing is
a product with a matrix of heads by heads. The other kernels are the products before and after.

Letters: B batch, H heads, G key heads, R queries of the strip, K keys that it sees, D head size;
A heads and N keys of a tile that mixes, M and N queries and keys of the others. Buffers are
(B, H, R, K); what is mixed is in units of log 2.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import LOG2E, dot, place, put, rows


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
    D: int
    BD: int
    A: int
    causal: bool
    window: bool
    pads: bool
    mix: bool
    remix: bool


@triton.jit
def products(x_, y_, s_, strip, F: tl.constexpr):
    """s (B, H, R, K) = x (B, H, R, D) · y (B, G, K, D)."""
    m0, n0, bh = tl.program_id(0) * F.M, tl.program_id(1) * F.N, tl.program_id(2)
    b, h = bh // strip.heads, bh % strip.heads
    x = rows(x_, place(x_, b, h, m0), strip.queries - m0, F.M, F.D, F.BD)
    y = rows(y_, place(y_, b, h // strip.group, n0), strip.keys - n0, F.N, F.D, F.BD)
    m, n = tl.arange(0, F.M), tl.arange(0, F.N)
    inside = (m0 + m < strip.queries)[:, None] & (n0 + n < strip.keys)[None, :]
    at = place(s_, b, h, m0) + m[:, None] * s_.n + n0 + n[None, :]
    tl.store(at, dot(x, tl.trans(y)).to(s_.at.dtype.element_ty), mask=inside)


@triton.jit
def tile_of(s_, b, h, m0, n0, strip, F: tl.constexpr):
    """A tile (M, N) of a buffer; 0 beyond its ends."""
    m, n = tl.arange(0, F.M), tl.arange(0, F.N)
    inside = (m0 + m < strip.queries)[:, None] & (n0 + n < strip.keys)[None, :]
    return tl.load(
        place(s_, b, h, m0) + m[:, None] * s_.n + n0 + n[None, :], mask=inside, other=0.0
    )


@triton.jit
def sums(s_, y_, out_, strip, F: tl.constexpr):
    """out (B, H, R, D): rows of y (B, G, K, D) summed by s."""
    m0, bh = tl.program_id(0) * F.M, tl.program_id(1)
    b, h = bh // strip.heads, bh % strip.heads
    acc = tl.full((F.M, F.BD), 0.0, tl.float32)
    for n0 in range(0, strip.keys, F.N):
        y = rows(y_, place(y_, b, h // strip.group, n0), strip.keys - n0, F.N, F.D, F.BD)
        acc += dot(tile_of(s_, b, h, m0, n0, strip, F), y)
    put(out_, place(out_, b, h, m0), strip.queries - m0, acc, F.M, F.D, F.BD)


@triton.jit
def turned(s_, x_, total_, strip, F: tl.constexpr):
    """Add to total (B, G, K, D) the rows of x (B, H, R, D), summed by s turned round."""
    n0, bg = tl.program_id(0) * F.N, tl.program_id(1)
    b, g = bg // (strip.heads // strip.group), bg % (strip.heads // strip.group)
    acc = rows(total_, place(total_, b, g, n0), strip.keys - n0, F.N, F.D, F.BD)
    for i in range(0, strip.group):
        h = g * strip.group + i
        for m0 in range(0, strip.queries, F.M):
            x = rows(x_, place(x_, b, h, m0), strip.queries - m0, F.M, F.D, F.BD)
            acc += dot(tl.trans(tile_of(s_, b, h, m0, n0, strip, F)), x)
    put(total_, place(total_, b, g, n0), strip.keys - n0, acc, F.N, F.D, F.BD)


@triton.jit
def matrix(x, heads, F: tl.constexpr, TURNED: tl.constexpr):
    """A matrix of heads (A, A), or turned round; 0 beyond the heads."""
    row, column = tl.arange(0, F.A)[:, None], tl.arange(0, F.A)[None, :]
    inside = (row < heads) & (column < heads)
    at = column * heads + row if TURNED else row * heads + column
    return tl.load(x + at, mask=inside, other=0.0)


@triton.jit
def blend(a, b, x_):
    """A product of tiles of heads, more exact than the numbers of 16 bits that x may have."""
    if x_.at.dtype.element_ty == tl.float32:
        found = tl.dot(a, b, input_precision="ieee")
    else:
        found = tl.dot(a, b, input_precision="tf32")
    return found


@triton.jit
def heads_of(s_, b, i, n0, strip, F: tl.constexpr):
    """Where the heads of some keys of one query lie (A, N), and which of them there are."""
    a, n = tl.arange(0, F.A), n0 + tl.arange(0, F.N)
    inside = (a < strip.heads)[:, None] & (n < strip.keys)[None, :]
    at = place(s_, b, 0, i) + tl.cast(a, tl.int64)[:, None] * s_.h + n[None, :]
    return at, inside


@triton.jit
def loaded(s_, b, i, n0, strip, F: tl.constexpr):
    """The heads of some keys of one query, (A, N) in float32."""
    at, inside = heads_of(s_, b, i, n0, strip, F)
    return tl.load(at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def stored(s_, b, i, n0, value, strip, F: tl.constexpr):
    """Put numbers in their place."""
    at, inside = heads_of(s_, b, i, n0, strip, F)
    tl.store(at, value.to(s_.at.dtype.element_ty), mask=inside)


@triton.jit
def scored(s, s_, mix, keep, at, strip, F: tl.constexpr):
    """The mixed scores (A, N) in units of log 2, -inf where a key isn't seen."""
    b, i, n0 = at
    t = blend(mix, s, s_) if F.mix else s
    n = n0 + tl.arange(0, F.N)
    p = strip.low + n
    seen = (n < strip.keys) & (p == p)
    if F.causal:
        seen = seen & (p <= strip.first + i)
    if F.window:
        away = p - strip.first - i
        seen = seen & (away < strip.width) & (away > -strip.width)
    if F.pads:
        there = tl.load(keep.at + b * keep.b + p, mask=(p >= 0) & (n < strip.keys), other=0)
        seen = seen & (there != 0)
    seen = seen | ((p < 0) & (n < strip.keys))
    return tl.where(seen[None, :], t * (strip.scale * LOG2E), float("-inf"))


@triton.jit
def talk(s_, lse_, mixes, keep, strip, F: tl.constexpr):
    """Put the weights in place of the scores, both mixed, and write lse (B, H, R)."""
    i, b = tl.program_id(0), tl.program_id(1)
    mix = matrix(mixes[0], strip.heads, F, True)
    remix = matrix(mixes[1], strip.heads, F, True)
    top = tl.full((F.A,), float("-inf"), tl.float32)
    total = tl.full((F.A,), 0.0, tl.float32)
    for n0 in range(0, strip.keys, F.N):
        s = loaded(s_, b, i, n0, strip, F)
        t = scored(s, s_, mix, keep, (b, i, n0), strip, F)
        new = tl.maximum(top, tl.max(t, 1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp2(top - safe) + tl.sum(tl.exp2(t - safe[:, None]), 1)
        top = new
    none = total == 0
    lse = tl.where(none, float("inf"), top + tl.log2(tl.where(none, 1.0, total)))
    a = tl.arange(0, F.A)
    tl.store(place(lse_, b, 0, i) + a * lse_.h, lse, mask=a < strip.heads)
    for n0 in range(0, strip.keys, F.N):
        s = loaded(s_, b, i, n0, strip, F)
        w = tl.exp2(scored(s, s_, mix, keep, (b, i, n0), strip, F) - lse[:, None])
        stored(s_, b, i, n0, blend(remix, w, s_) if F.remix else w, strip, F)


@triton.jit
def talk_back(s_, du_, lse_, mixes, made, keep, strip, F: tl.constexpr):
    """Put the mixed weights in place of the scores, and in du's the gradient of the scores.

    made: sums (B, R, A, A) for the gradients of mix and remix, to which this strip's are added.
    """
    i, b = tl.program_id(0), tl.program_id(1)
    mix = matrix(mixes[0], strip.heads, F, True)
    remix = matrix(mixes[1], strip.heads, F, False)
    a = tl.arange(0, F.A)
    lse = tl.load(place(lse_, b, 0, i) + a * lse_.h, mask=a < strip.heads, other=float("inf"))
    delta = tl.full((F.A,), 0.0, tl.float32)
    for n0 in range(0, strip.keys, F.N):
        s, du = loaded(s_, b, i, n0, strip, F), loaded(du_, b, i, n0, strip, F)
        w = tl.exp2(scored(s, s_, mix, keep, (b, i, n0), strip, F) - lse[:, None])
        delta += tl.sum(w * (blend(remix, du, s_) if F.remix else du), 1)
    d_mix = tl.full((F.A, F.A), 0.0, tl.float32)
    d_remix = tl.full((F.A, F.A), 0.0, tl.float32)
    for n0 in range(0, strip.keys, F.N):
        s, du = loaded(s_, b, i, n0, strip, F), loaded(du_, b, i, n0, strip, F)
        w = tl.exp2(scored(s, s_, mix, keep, (b, i, n0), strip, F) - lse[:, None])
        ds = w * ((blend(remix, du, s_) if F.remix else du) - delta[:, None])
        if F.remix:
            d_remix += blend(w, tl.trans(du), s_)
            w = blend(tl.trans(remix), w, s_)
        if F.mix:
            d_mix += blend(s, tl.trans(ds), s_)
            ds = blend(tl.trans(mix), ds, s_)
        stored(s_, b, i, n0, w, strip, F)
        stored(du_, b, i, n0, ds * strip.scale, strip, F)
    add(made[0], b, i, d_mix * strip.scale, F, F.mix)
    add(made[1], b, i, d_remix, F, F.remix)


@triton.jit
def add(x, b, i, found, F: tl.constexpr, ASKED: tl.constexpr):
    """Add a matrix (A, A) to the place of this row of a strip."""
    if ASKED:
        a = tl.arange(0, F.A)
        at = place(x, b, i, 0) + a[:, None] * x.n + a[None, :]
        tl.store(at, tl.load(at) + found)
