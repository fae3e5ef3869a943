"""Scores that are sums over layers: products over many channels, a block of them at a time.

Letters: B batch, H heads, G key heads, M queries and N keys of a tile, C channels of all layers,
BD those of a block, R queries of a strip and K keys that it sees. A block's channels may belong to
two layers: the sum doesn't mind.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.forward import begun, finish, softer
from anyformer.ops.kernels.tile import LOG2E, dot, hidden, key_range, place, rows, steps


@triton.jit
def some(x, at, count, left, SIZE: tl.constexpr, F: tl.constexpr):
    """SIZE rows of a block of channels, of which so many are left; 0 beyond both."""
    n, d = tl.arange(0, SIZE), tl.arange(0, F.BD)
    seen = (n < count)[:, None]
    if not F.whole:
        seen = seen & (d < left)[None, :]
    return tl.load(at + n[:, None] * x.n + d[None, :], mask=seen, other=0.0)


@triton.jit
def summed(q_, k_, at, left, channels, F: tl.constexpr):
    """q · k of a tile (M, N) over all channels; at: where its rows lie, left: how many."""
    s = tl.full((F.M, F.N), 0.0, tl.float32)
    for c in range(0, channels, F.BD):
        q = some(q_, at[0] + c, left[0], channels - c, F.M, F)
        k = some(k_, at[1] + c, left[1], channels - c, F.N, F)
        s += dot(q, tl.trans(k))
    return s


@triton.jit
def forward(q_, k_, v_, outs, lse_, extra, site, F: tl.constexpr, LEAD: tl.constexpr):
    """out (B, H, Q, E) and lse (B, H, Q) in units of log 2: a program for each tile of queries."""
    first, bh = tl.program_id(0) * F.M, tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    g = h // site.group
    n = tl.arange(0, F.N)
    asks, many = place(q_, b, h, first), site.queries - first
    keep = extra[3].at + tl.cast(b, tl.int64) * extra[3].b
    bound, state = begun(extra, b, h, first, site, F)
    if LEAD:
        for j in range(0, site.lead, F.N):
            at = place(k_, b, g, j)
            s = summed(q_, k_, (asks, at), (many, site.lead - j), site.channels, F)
            s *= site.scale * LOG2E
            s = tl.where((j + n < site.lead)[None, :], s, float("-inf"))
            v = rows(v_, place(v_, b, g, j), site.lead - j, F.N, F.E, F.BE)
            state = softer(state, s, v, bound, F)
    begin, _, _, stop = key_range(first, 0 * first, site, F)
    for t in range(begin, stop):
        p0 = t * F.N
        at = place(k_, b, g, site.lead + p0)
        s = summed(q_, k_, (asks, at), (many, site.keys - p0), site.channels, F)
        s *= site.scale * LOG2E
        away = steps(p0 - first - site.start - F.M + 1, F, False)
        s = hidden(s, away, p0 + n[None, :], keep, site, F, True)
        v = rows(v_, place(v_, b, g, site.lead + p0), site.keys - p0, F.N, F.E, F.BE)
        state = softer(state, s, v, bound, F)
    finish(outs, lse_, (b, h, first), state, 0.0, site, F)


@triton.jit
def slopes(q_, k_, v_, grads, made, keep, strip, F: tl.constexpr):
    """A tile of a strip's weights and of the gradients of its scores, both (B, H, R, K).

    grads: grad (B, H, R, E), lse and delta (B, H, R). Tiles that no query sees are zeros.
    """
    m0, n0, bh = tl.program_id(0) * F.M, tl.program_id(1) * F.N, tl.program_id(2)
    b, h = bh // strip.heads, bh % strip.heads
    g, m, n = h // strip.group, tl.arange(0, F.M), tl.arange(0, F.N)
    rest, more = strip.queries - m0, strip.keys - n0
    seen, wide = visible(keep, (b, m0, n0), strip, F)
    at = (place(q_, b, h, m0), place(k_, b, g, n0))
    s = summed(q_, k_, at, (rest, more), wide, F) * (strip.scale * LOG2E)
    lse = tl.load(place(grads[1], b, h, m0) + m, mask=m < rest, other=float("inf"))
    delta = tl.load(place(grads[2], b, h, m0) + m, mask=m < rest, other=0.0)
    grad = rows(grads[0], place(grads[0], b, h, m0), rest, F.M, F.E, F.BE)
    v = rows(v_, place(v_, b, g, n0), more, F.N, F.E, F.BE)
    w = tl.where(seen, tl.exp2(s - lse[:, None]), 0.0)
    ds = w * (dot(grad, tl.trans(v)) - delta[:, None]) * strip.scale
    inside = (m < rest)[:, None] & (n < more)[None, :]
    for i in tl.static_range(2):
        to = place(made[i], b, h, m0) + m[:, None] * made[i].n + n0 + n[None, :]
        tl.store(to, (w if i == 0 else ds).to(made[i].at.dtype.element_ty), mask=inside)


@triton.jit
def visible(keep, at, strip, F: tl.constexpr):
    """Which scores of a tile count (M, N), and the channels to sum: none where no score does."""
    b, m0, n0 = at
    m, n = m0 + tl.arange(0, F.M), n0 + tl.arange(0, F.N)
    p = strip.low + n
    away = p[None, :] - strip.first - m[:, None]
    seen = (away == away) & (n < strip.keys)[None, :]
    if F.causal:
        seen = seen & (away <= 0)
    if F.window:
        seen = seen & (away < strip.width) & (away > -strip.width)
    if F.pads:
        there = tl.load(keep.at + b * keep.b + p, mask=(p >= 0) & (n < strip.keys), other=0)
        seen = seen & (there != 0)[None, :]
    seen = seen | ((p < 0) & (n < strip.keys))[None, :]
    some_seen = tl.max(tl.max(seen.to(tl.int32), 1), 0)
    return seen, strip.channels * some_seen
