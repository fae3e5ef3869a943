"""The kernel that compares rows of logits with their labels and turns them into gradients.

A row is pieces of N logits, and a piece is groups of K, as many as a thread reads at once. A thread
keeps the greatest and the sum of its groups, so that what is kept costs a K-th for each logit.
Exponents are in units of log 2.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LOW = tl.constexpr(-1e30)  # less than any logit, with an exponent that is a number


@triton.jit
def capped(x, site, S: tl.constexpr):
    """Logits in float32, bounded where the shape says so: cap · tanh(x / cap)."""
    x = x.to(tl.float32)
    if S.CAP:
        x = site.cap * (2.0 * tl.sigmoid(2.0 * x / site.cap) - 1.0)
    return x


@triton.jit
def last(here_, at, site, S: tl.constexpr):
    """The piece in which words end: -inf where there is none.

    What is masked is what isn't there, so that a piece is read many logits at a time.
    """
    x = capped(tl.load(here_ + at, mask=at < site.wide, other=0.0), site, S)
    return tl.where(at < site.vocab, x, float("-inf"))


@triton.jit
def more(x, j, top, total, at):
    """The greatest, sums and first places of groups, with those of a piece that starts at j.

    Pieces come from the last to the first, so that of equal ones the first is kept.
    """
    own = tl.max(x, 1)
    at = tl.where(own >= top, j, at)
    new = tl.maximum(top, own)
    terms = tl.exp2(x * LOG2E - (new * LOG2E)[:, None])
    return new, total * tl.exp2((top - new) * LOG2E) + tl.sum(terms, 1), at


@triton.jit
def slope(x, whole, y, site, S: tl.constexpr):
    """p - y of logits, times the slope of their bound."""
    p = tl.exp2(x * LOG2E - whole) - y
    if S.CAP:
        part = x / site.cap
        p *= 1.0 - part * part
    return p


@triton.jit
def learn(here_, n, end, whole, site, S: tl.constexpr):
    """p in place of a row's logits, 0 beyond its words."""
    for j in range(0, end, S.N):
        x = capped(tl.load(here_ + j + n), site, S)
        tl.store(here_ + j + n, slope(x, whole, 0.0, site, S))
    at = end + n
    x = capped(tl.load(here_ + at, mask=at < site.wide, other=0.0), site, S)
    p = tl.where(at < site.vocab, slope(x, whole, 0.0, site, S), 0.0)
    tl.store(here_ + at, p, mask=at < site.wide)


@triton.jit
def one(here_, label_, loss_, hits_, site, S: tl.constexpr):
    """A row: from its end for greatest and sum, then from its start, which was read last."""
    label = tl.load(label_)
    real = label != S.IGNORED
    lane, k = tl.arange(0, S.N // S.K), tl.arange(0, S.K)
    n = lane[:, None] * S.K + k[None, :]
    end = site.vocab // S.N * S.N
    top = tl.full((S.N // S.K,), LOW, tl.float32)
    at = tl.full((S.N // S.K,), 0, tl.int32)
    held = tl.load(here_ + (end - S.N) + n, mask=end > 0, other=0.0)
    top, total, at = more(last(here_, end + n, site, S), end, top, tl.zeros_like(top), at)
    for i in range(S.N, end + S.N, S.N):
        ahead = tl.load(here_ + (end - i - S.N) + n, mask=i < end, other=0.0)  # read meanwhile
        top, total, at = more(capped(held, site, S), end - i, top, total, at)
        held = ahead
    most = tl.max(top, 0)
    whole = tl.log2(tl.sum(total * tl.exp2((top - most) * LOG2E), 0)) + most * LOG2E
    asked = capped(tl.load(here_ + tl.maximum(label, 0)), site, S)
    tl.store(loss_, tl.where(real, whole / LOG2E - asked, 0.0))
    near = tl.min(tl.where(top == most, at + lane * S.K, 2147483647), 0) + k
    found = capped(tl.load(here_ + near, mask=near < site.wide, other=0.0), site, S)
    best = tl.min(tl.where((found == most) & (near < site.vocab), near, 2147483647), 0)
    tl.store(hits_, (real & (best == label)).to(tl.int64))
    if S.LEARNS:
        tl.debug_barrier()  # what was asked for was read by all
        learn(here_, n, end, tl.where(real, whole, float("inf")), site, S)
        tl.debug_barrier()  # the label's is written once more
        tl.store(here_ + tl.maximum(label, 0), slope(asked, whole, 1.0, site, S), mask=real)


@triton.jit
def entropy(logits_, labels_, loss_, hits_, site, S: tl.constexpr):
    """Rows of logits: their losses, whether the first of their greatest is the label, and p - y.

    Logits are (T, wide), of which V are words; beyond them gradients are 0. A row is read twice, a
    piece at a time: for greatest and sum, then for the gradient, which replaces it. A program
    takes row after row, so that no more are under way than a cache holds.
    """
    for turn in range(0, site.turns):
        row = tl.program_id(0) + turn * tl.num_programs(0)
        if row < site.rows:
            here_ = logits_ + row.to(tl.int64) * site.wide
            one(here_, labels_ + row, loss_ + row, hits_ + row, site, S)
