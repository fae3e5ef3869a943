"""Kernels of a GELU behind a bias: forwards, and backwards with the sums that are the bias's.

Letters: T rows, F width. A program has C columns of many rows, R at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def inverse(x):
    """1 / x of x from 1 to infinity, by a root: a division has four instructions for other x."""
    root = tl.rsqrt(x)
    return root * root


@triton.jit
def share(x, square):
    """Φ by tanh, as s(u) with u = 2√(2/π)(x + 0.044715 x³), in powers of 2; given x²."""
    return inverse(1.0 + tl.exp2(x * (-2.302208198144325 - 0.1029432395800235 * square)))


@triton.jit
def tail(x):
    """Φ(-|x|) of a normal distribution, and its density at x.

    It is the density times a polynomial of 1 / (1 + 0.2316419 |x|), with an error below 1e-7
    (Abramowitz and Stegun 26.2.17).
    """
    t = inverse(1.0 + 0.2316419 * tl.abs(x))
    e = tl.exp2(x * x * (-0.5 * LOG2E)) * 0.3989422804014327
    high = t * (-1.821255978 + t * 1.330274429)
    return e * t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + high))), e


@triton.jit
def value(x, S: tl.constexpr):
    """x Φ(x)."""
    if S.TANH:
        y = x * share(x, x * x)
    else:
        below, _ = tail(x)
        y = tl.maximum(x, 0.0) - tl.abs(x) * below  # on both sides of 0
    return y


@triton.jit
def slope(x, S: tl.constexpr):
    """d/dx of x Φ(x)."""
    if S.TANH:
        square = x * x
        s = share(x, square)
        d = s + x * (s - s * s) * (1.5957691216057308 + 0.21406444881780076 * square)
    else:
        below, e = tail(x)
        d = tl.where(x < 0.0, below, 1.0 - below) + x * e
    return d


@triton.jit
def forward(h_, bias_, out_, site, S: tl.constexpr):
    """gelu(h + bias) of rows (T, F)."""
    c = tl.program_id(0) * S.C + tl.arange(0, S.C)
    bias = tl.load(bias_ + c, mask=c < site.width, other=0.0).to(tl.float32)
    start = tl.program_id(1).to(tl.int64) * site.each
    for i in range(0, site.each, S.R):
        r = start + i + tl.arange(0, S.R)
        at = r[:, None] * site.width + c[None, :]
        there = (r < site.rows)[:, None] & (c < site.width)[None, :]
        x = tl.load(h_ + at, mask=there, other=0.0).to(tl.float32) + bias[None, :]
        tl.store(out_ + at, value(x, S), mask=there)


@triton.jit
def backward(grad_, h_, bias_, out_, sums_, site, S: tl.constexpr):
    """The gradient of h, and for each program the sum of its rows (programs, F)."""
    c = tl.program_id(0) * S.C + tl.arange(0, S.C)
    bias = tl.load(bias_ + c, mask=c < site.width, other=0.0).to(tl.float32)
    start = tl.program_id(1).to(tl.int64) * site.each
    total = tl.full((S.R, S.C), 0.0, tl.float32)
    for i in tl.range(0, site.each, S.R, num_stages=S.STAGES):
        r = start + i + tl.arange(0, S.R)
        at = r[:, None] * site.width + c[None, :]
        there = (r < site.rows)[:, None] & (c < site.width)[None, :]
        x = tl.load(h_ + at, mask=there, other=0.0).to(tl.float32) + bias[None, :]
        own = slope(x, S) * tl.load(grad_ + at, mask=there, other=0.0).to(tl.float32)
        total += own
        tl.store(out_ + at, own, mask=there)
    at = tl.program_id(1) * site.width + c
    tl.store(sums_ + at, tl.sum(total, 0), mask=c < site.width)
