"""The kernel that compares rows of logits with their labels and turns them into gradients."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def capped(x, site, S: tl.constexpr):
    """Logits in float32, bounded where the shape says so: cap · tanh(x / cap)."""
    x = x.to(tl.float32)
    if S.CAP:
        x = site.cap * (2.0 * tl.sigmoid(2.0 * x / site.cap) - 1.0)
    return x


@triton.jit
def piece(here_, at, site, S: tl.constexpr):
    """Logits of a row at some places, -inf where there is no word.

    What is masked is what isn't there, so that a piece is read many logits at a time.
    """
    x = capped(tl.load(here_ + at, mask=at < site.wide, other=0.0), site, S)
    return tl.where(at < site.vocab, x, float("-inf"))


@triton.jit
def entropy(logits_, labels_, loss_, hits_, site, S: tl.constexpr):
    """A row of logits: its loss, whether the first of its greatest is the label, and p - y.

    Logits are (T, wide), of which V are words; beyond them gradients are 0. A row is read twice, a
    piece at a time: for greatest and sum, then for the gradient, which replaces it.
    """
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels_ + row)
    here_ = logits_ + row * site.wide
    n = tl.arange(0, S.N)
    top = tl.full((S.N,), float("-inf"), tl.float32)
    total = tl.full((S.N,), 0.0, tl.float32)
    at = tl.full((S.N,), 0, tl.int32)
    for j in range(0, site.wide, S.N):
        x = piece(here_, j + n, site, S)
        new = tl.maximum(top, x)
        sure = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(top - sure) + tl.exp(x - sure)
        at = tl.where(x > top, j + n, at)
        top = new
    most = tl.max(top, 0)
    whole = tl.log(tl.sum(total * tl.exp(top - most), 0)) + most
    best = tl.min(tl.where(top == most, at, 2147483647), 0)
    real = label != S.IGNORED
    asked = capped(tl.load(here_ + tl.maximum(label, 0)), site, S)
    tl.store(loss_ + row, tl.where(real, whole - asked, 0.0))
    tl.store(hits_ + row, (real & (best == label)).to(tl.int64))
    if S.LEARNS:
        for j in range(0, site.wide, S.N):
            x = piece(here_, j + n, site, S)
            slope = tl.exp(x - whole) - tl.where(j + n == label, 1.0, 0.0)
            word = j + n < site.vocab
            if S.CAP:
                part = tl.where(word, x / site.cap, 0.0)
                slope *= 1.0 - part * part
            tl.store(here_ + j + n, tl.where(real & word, slope, 0.0), mask=j + n < site.wide)
