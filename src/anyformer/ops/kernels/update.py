"""Kernels of an update by AdamW: the squares of all gradients, then every weight at once.

Tensors are found by their addresses (T, 7): weight, gradient, mean, square, step, copy, rate. A
copy of 0 is none, and its gradient is float32; else both are of 16 bits. Pieces of N numbers of a
tensor are C in all; each has its owner and its number in it.
"""

from __future__ import annotations

import triton
import triton.language as tl

WIDTH = tl.constexpr(7)  # addresses of a tensor


@triton.jit
def at(tensor_, place: tl.constexpr, dtype: tl.constexpr):
    """Numbers that lie at an address, which is a multiple of 16."""
    return tl.multiple_of(tl.load(tensor_ + place).to(tl.pointer_type(dtype)), 16)


@triton.jit
def one(tensor_, place: tl.constexpr):
    """The only number that lies at an address."""
    return tl.load(tl.load(tensor_ + place).to(tl.pointer_type(tl.float32)))


@triton.jit
def piece(c, owners_, numbers_, sizes_, S: tl.constexpr):
    """The owner of a piece, where its numbers lie in it and which of them are there."""
    owner = tl.load(owners_ + c)
    size = tl.load(sizes_ + owner)
    if S.EVEN:
        size = tl.multiple_of(size, 16)
    n = tl.load(numbers_ + c).to(tl.int64) * S.N + tl.arange(0, S.N)
    return owner, n, n < size


@triton.jit
def slope(tensor_, n, there, S: tl.constexpr):
    """A gradient in float32."""
    if tl.load(tensor_ + 5) != 0:
        g = tl.load(at(tensor_, 1, S.LOW) + n, mask=there, other=0.0).to(tl.float32)
    else:
        g = tl.load(at(tensor_, 1, tl.float32) + n, mask=there, other=0.0)
    return g


@triton.jit
def squares(addresses_, pieces, parts_, site, S: tl.constexpr):
    """Sums of squares of gradients, one for each program (P,)."""
    total = tl.full((S.N,), 0.0, tl.float32)
    for c in range(tl.program_id(0), site.pieces, tl.num_programs(0)):
        owner, n, there = piece(c, pieces.owners, pieces.numbers, pieces.sizes, S)
        g = slope(addresses_ + owner * WIDTH, n, there, S)
        total += g * g
    tl.store(parts_ + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def share(parts_, site, S: tl.constexpr):
    """The norm of all gradients, and what they are multiplied by: 1, or less if it is too much."""
    p = tl.arange(0, S.P)
    norm = tl.sqrt(tl.sum(tl.load(parts_ + p, mask=p < site.parts, other=0.0), 0))
    factor = site.most / (norm + 1e-6)
    return norm, tl.where(factor > 1.0, 1.0, factor)  # NaN stays


@triton.jit
def grown(step, exponent):
    """1 - 2 to the power of step · exponent, which is near 0 at first: hence in float64."""
    return (1.0 - tl.exp2(step.to(tl.float64) * exponent)).to(tl.float32)


@triton.jit
def learn(tensor_, n, there, decay, factor, site, S: tl.constexpr):
    """A piece of a tensor after a step, and its copy in 16 bits."""
    step, rate = one(tensor_, 4), one(tensor_, 6)
    weight_, mean_ = at(tensor_, 0, tl.float32), at(tensor_, 2, tl.float32)
    square_ = at(tensor_, 3, tl.float32)
    g = slope(tensor_, n, there, S) * factor
    weight = tl.load(weight_ + n, mask=there, other=0.0)
    mean = tl.load(mean_ + n, mask=there, other=0.0)
    square = tl.load(square_ + n, mask=there, other=0.0)
    weight -= rate * decay * weight
    mean = site.keeps * mean + site.takes * g
    square = site.square_keeps * square + site.square_takes * g * g
    width = tl.sqrt(square) / tl.sqrt(grown(step, site.square_exponent)) + site.eps
    weight -= rate / grown(step, site.exponent) * mean / width
    tl.store(weight_ + n, weight, mask=there)
    tl.store(mean_ + n, mean, mask=there)
    tl.store(square_ + n, square, mask=there)
    if tl.load(tensor_ + 5) != 0:
        tl.store(at(tensor_, 5, S.LOW) + n, weight, mask=there)


@triton.jit
def update(addresses_, pieces, parts_, norm_, site, S: tl.constexpr):
    """Weights, means and squares after a step of AdamW; a program has EACH pieces in turn."""
    first = tl.program_id(0) * S.EACH
    norm, factor = share(parts_, site, S)
    if first == 0:
        tl.store(norm_, norm)
    for c in range(first, tl.minimum(first + S.EACH, site.pieces)):
        owner, n, there = piece(c, pieces.owners, pieces.numbers, pieces.sizes, S)
        decay = tl.load(pieces.decays + owner)
        learn(addresses_ + owner * WIDTH, n, there, decay, factor, site, S)
