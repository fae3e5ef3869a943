"""Kernels of a GELU behind a bias: forwards, and backwards with the sums that are the bias's.

Letters: T rows, F width. A program has C columns of many rows, R at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def tanh_slope(x):
    """Φ by tanh, as s(u) with u = 2√(2/π)(x + 0.044715 x³), and d/dx of x Φ."""
    square = x * x
    s = 1.0 / (1.0 + tl.exp2(x * (1.5957691216057308 + 0.07135481627260025 * square) * -LOG2E))
    return s, s + x * (s - s * s) * (1.5957691216057308 + 0.21406444881780076 * square)


@triton.jit
def normal_slope(x):
    """Φ of a normal distribution, and d/dx of x Φ.

    Φ(-|x|) is exp(-x² / 2) times a polynomial of 1 / (1 + 0.2316419 |x|), with an error below 1e-7
    (Abramowitz and Stegun 26.2.17).
    """
    t = 1.0 / (1.0 + 0.2316419 * tl.abs(x))
    e = tl.exp2(x * x * (-0.5 * LOG2E)) * 0.3989422804014327
    tail = t * (-1.821255978 + t * 1.330274429)
    tail = e * t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + tail)))
    p = tl.where(x < 0.0, tail, 1.0 - tail)
    return p, p + x * e


@triton.jit
def both(x, S: tl.constexpr):
    """What x is multiplied by, and the slope of the product."""
    if S.TANH:
        p, slope = tanh_slope(x)
    else:
        p, slope = normal_slope(x)
    return p, slope


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
        p, _ = both(x, S)
        tl.store(out_ + at, x * p, mask=there)


@triton.jit
def backward(grad_, h_, bias_, out_, sums_, site, S: tl.constexpr):
    """The gradient of h, and for each program the sum of its rows (programs, F)."""
    c = tl.program_id(0) * S.C + tl.arange(0, S.C)
    bias = tl.load(bias_ + c, mask=c < site.width, other=0.0).to(tl.float32)
    start = tl.program_id(1).to(tl.int64) * site.each
    total = tl.full((S.R, S.C), 0.0, tl.float32)
    for i in range(0, site.each, S.R):
        r = start + i + tl.arange(0, S.R)
        at = r[:, None] * site.width + c[None, :]
        there = (r < site.rows)[:, None] & (c < site.width)[None, :]
        x = tl.load(h_ + at, mask=there, other=0.0).to(tl.float32) + bias[None, :]
        _, slope = both(x, S)
        slope *= tl.load(grad_ + at, mask=there, other=0.0).to(tl.float32)
        total += slope
        tl.store(out_ + at, slope, mask=there)
    at = tl.program_id(1) * site.width + c
    tl.store(sums_ + at, tl.sum(total, 0), mask=c < site.width)
