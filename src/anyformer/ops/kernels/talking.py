"""Heads that talk: kernels over a strip of queries whose scores lie in a buffer, all heads at once.

A program has the heads of some keys of one query as columns of its tile, so that mixing is a
product with a matrix of heads by heads, and what comes out can go into the next product as it is.
It reads a row twice, the second time backwards: what was read last is near. So is what was written
last: each kernel begins where the one before ended. Long rows are cut into chunks, with a program
each, and what all chunks must know has a kernel of its own. Sums over keys are kept for each of
ROWS places, as many as the warps have, and joined at the end: no thread waits meanwhile.

Letters: as in `strips`; A heads and N keys of a tile. What is mixed is in units of log 2.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.chunks import of_chunks, own, turn
from anyformer.ops.kernels.strips import begin, loaded, stored
from anyformer.ops.kernels.tile import LOG2E, dot, place

LEAST = tl.constexpr(-1e30)  # below all scores: so rows without a key need no case of their own


@triton.jit
def matrix(x, heads, F: tl.constexpr, TURNED: tl.constexpr):
    """A matrix of heads (A, A), or turned round; 0 beyond the heads."""
    row, column = tl.arange(0, F.A)[:, None], tl.arange(0, F.A)[None, :]
    inside = (row < heads) & (column < heads)
    at = column * heads + row if TURNED else row * heads + column
    return tl.load(x + at, mask=inside, other=0.0)


@triton.jit
def unseen(keep, b, i, n0, strip, F: tl.constexpr):
    """0 for keys that a query sees, -inf for others, (N,)."""
    n, last = n0 + tl.arange(0, F.N), strip.keys
    lead = tl.minimum(-strip.low, strip.keys)  # so many are persistent: all see them
    if F.causal:
        last = tl.minimum(last, strip.first + i + 1 - strip.low)
    if F.window:
        last = tl.minimum(last, strip.first + i + strip.width - strip.low)
    seen = n < tl.maximum(last, lead)
    if F.window:
        seen = seen & (n > strip.first + i - strip.width - strip.low)
    if F.pads:
        p = strip.low + n
        kept = tl.load(keep.at + b * keep.b + p, mask=(p >= 0) & (n < strip.keys), other=0)
        seen = seen & (kept != 0)
    if F.window or F.pads:
        seen = seen | (n < lead)
    return tl.where(seen, 0.0, float("-inf"))


@triton.jit
def scored(s, mix, hide, strip, F: tl.constexpr):
    """The mixed scores (N, A) in units of log 2, -inf where a key isn't seen."""
    t = dot(s, mix) if F.mix else s.to(tl.float32)
    return t * (strip.scale * LOG2E) + hide[:, None]


@triton.jit
def level_of(s_, mix, keep, at, strip, F: tl.constexpr, ROWS: tl.constexpr):
    """The log-sum-exp of a query's mixed scores (A,), inf where no key is seen."""
    b, i, low, high = at
    top = tl.full((ROWS // 16, 8, F.A), LEAST, tl.float32)
    total = tl.full((ROWS // 16, 8, F.A), 0.0, tl.float32)
    for n0 in range(low, high, F.N):
        hide = unseen(keep, b, i, n0, strip, F)
        t = scored(loaded(s_, b, i, n0, strip, F), mix, hide, strip, F)
        t = tl.reshape(t, (F.N // ROWS, ROWS // 16, 2, 8, F.A))
        new = tl.maximum(top, tl.max(tl.max(t, 2), 0))
        more = tl.exp2(t - new[None, :, None, :, :])
        total = total * tl.exp2(top - new) + tl.sum(tl.sum(more, 2), 0)
        top = new
    best = tl.max(tl.max(top, 1), 0)  # by axis: joined first, Triton 3.6 leaves rows out
    total = tl.sum(tl.sum(total * tl.exp2(top - best[None, None, :]), 1), 0)
    none = total == 0
    return tl.where(none, float("inf"), best + tl.log2(tl.where(none, 1.0, total)))


@triton.jit
def levels(s_, lse_, some_, mixes, keep, strip, F: tl.constexpr, ROWS: tl.constexpr):
    """The log-sum-exp of a chunk of keys, some (B, R · C, A)."""
    begin(F)
    i, b, c = turn(strip, True)
    mix = matrix(mixes[0], strip.heads, F, False).to(s_.at.dtype.element_ty)
    low, high = own(i, c, strip, F)
    level = level_of(s_, mix, keep, (b, i, low, high), strip, F, ROWS)
    tl.store(place(some_, b, i * tl.num_programs(2) + c, 0) + tl.arange(0, F.A), level)


@triton.jit
def joined(some_, b, i, F: tl.constexpr):
    """The log-sum-exp of all chunks (A,): one that is inf has no keys."""
    level = of_chunks(some_, b, i, float("inf"), F)
    level = tl.where(level == float("inf"), float("-inf"), level)
    top = tl.maximum(tl.max(level, 0), LEAST)
    total = tl.sum(tl.exp2(level - top[None, :]), 0)
    none = total == 0
    return tl.where(none, float("inf"), top + tl.log2(tl.where(none, 1.0, total)))


@triton.jit
def talk(s_, lse_, some_, mixes, keep, strip, F: tl.constexpr, ROWS: tl.constexpr):
    """Put the weights in place of the scores, both mixed, and write lse (B, H, R)."""
    begin(F)
    i, b, c = turn(strip, not F.chunk)
    TYPE: tl.constexpr = s_.at.dtype.element_ty
    mix = matrix(mixes[0], strip.heads, F, False).to(TYPE)
    remix = matrix(mixes[1], strip.heads, F, False).to(TYPE)
    low, high = own(i, c, strip, F)
    if F.chunk:
        lse = joined(some_, b, i, F)
    else:
        lse = level_of(s_, mix, keep, (b, i, low, high), strip, F, ROWS)
    a = tl.arange(0, F.A)
    tl.store(place(lse_, b, 0, i) + a * lse_.h, lse, mask=a < strip.heads)
    for past in range(low, high, F.N):
        n0 = low + high - F.N - past
        hide = unseen(keep, b, i, n0, strip, F)
        w = scored(loaded(s_, b, i, n0, strip, F), mix, hide, strip, F)
        w = tl.exp2(w - lse[None, :])
        stored(s_, b, i, n0, dot(w.to(TYPE), remix) if F.remix else w, strip, F)


@triton.jit
def met_of(s_, du_, lse, mix, keep, at, strip, F: tl.constexpr):
    """Sums of weights by du over keys (A, A): heads before remix by heads after it."""
    b, i, low, high = at
    met = tl.full((F.A, F.A), 0.0, tl.float32)
    for n0 in range(low, high, F.N):
        hide = unseen(keep, b, i, n0, strip, F)
        w = scored(loaded(s_, b, i, n0, strip, F), mix, hide, strip, F)
        w = tl.exp2(w - lse[None, :]).to(s_.at.dtype.element_ty)
        met += dot(tl.trans(w), loaded(du_, b, i, n0, strip, F))
    return met


@triton.jit
def lse_of(lse_, b, i, strip, F: tl.constexpr):
    """The log-sum-exp of a query (A,); inf beyond the heads."""
    a = tl.arange(0, F.A)
    return tl.load(place(lse_, b, 0, i) + a * lse_.h, mask=a < strip.heads, other=float("inf"))


@triton.jit
def taken(met, mixes, strip, F: tl.constexpr):
    """What softmax takes off (A,), of the sums of weights by du: a part, if they are a part."""
    if F.remix:
        by = matrix(mixes[1], strip.heads, F, False)
    else:
        a = tl.arange(0, F.A)
        by = tl.where(a[:, None] == a[None, :], 1.0, 0.0)
    return tl.sum(met * by, 1)


@triton.jit
def meet(s_, du_, lse_, mixes, made, some_, keep, strip, F: tl.constexpr):
    """What softmax takes off for a chunk of keys, some (B, R · C, A), and remix's gradient."""
    begin(F)
    i, b, c = turn(strip, True)
    mix = matrix(mixes[0], strip.heads, F, False).to(s_.at.dtype.element_ty)
    low, high = own(i, c, strip, F)
    lse = lse_of(lse_, b, i, strip, F)
    met = met_of(s_, du_, lse, mix, keep, (b, i, low, high), strip, F)
    row = i * tl.num_programs(2) + c
    tl.store(place(some_, b, row, 0) + tl.arange(0, F.A), taken(met, mixes, strip, F))
    if F.remix:
        add(made[1], b, row, met, F)


@triton.jit
def talk_back(s_, du_, lse_, mixes, made, some_, keep, strip, F: tl.constexpr):
    """Put the mixed weights in place of the scores, and in du's the gradient of the scores.

    made: sums (B, R · C, A, A) for the gradients of mix and remix, to which this strip's are added.
    The sums of weights by du over a row give remix's gradient, and with remix what softmax takes
    off; in chunks `meet` has found both.
    """
    begin(F)
    i, b, c = turn(strip, not F.chunk)
    TYPE: tl.constexpr = s_.at.dtype.element_ty
    mix = matrix(mixes[0], strip.heads, F, False).to(TYPE)
    lse = lse_of(lse_, b, i, strip, F)
    low, high = own(i, c, strip, F)
    if F.chunk:
        delta = tl.sum(of_chunks(some_, b, i, 0.0, F), 0)
    else:
        met = met_of(s_, du_, lse, mix, keep, (b, i, low, high), strip, F)
        delta = taken(met, mixes, strip, F)
        if F.remix:
            add(made[1], b, i, met, F)
    remix = matrix(mixes[1], strip.heads, F, False).to(TYPE)
    back = matrix(mixes[1], strip.heads, F, True).to(TYPE)
    away = matrix(mixes[0], strip.heads, F, True).to(TYPE)
    d_mix = tl.full((F.A, F.A), 0.0, tl.float32)
    for past in range(low, high, F.N):
        n0 = low + high - F.N - past
        hide = unseen(keep, b, i, n0, strip, F)
        s, du = loaded(s_, b, i, n0, strip, F), loaded(du_, b, i, n0, strip, F)
        w = tl.exp2(scored(s, mix, hide, strip, F) - lse[None, :])
        stored(s_, b, i, n0, dot(w.to(TYPE), remix) if F.remix else w, strip, F)
        ds = w * ((dot(du, back) if F.remix else du.to(tl.float32)) - delta[None, :])
        if F.mix:
            d_mix += dot(tl.trans(ds.to(TYPE)), s)
            ds = dot(ds.to(TYPE), away)
        stored(du_, b, i, n0, ds * strip.scale, strip, F)
    if F.mix:
        add(made[0], b, i * tl.num_programs(2) + c, tl.trans(d_mix) * strip.scale, F)


@triton.jit
def spot(x, b, i, F: tl.constexpr):
    """Where a matrix of heads (A, A) lies in x (B, …, A, A)."""
    a = tl.arange(0, F.A)
    return place(x, b, i, 0) + a[:, None] * x.n + a[None, :]


@triton.jit
def add(x, b, i, found, F: tl.constexpr):
    """Add a matrix of heads to its place."""
    at = spot(x, b, i, F)
    tl.store(at, tl.load(at) + found)
