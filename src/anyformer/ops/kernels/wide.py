"""Kernels for tens of rows of a decoding step: a norm, and a product with what stands behind it.

They do what `rows` does (kernels/rows.py) where products are tiles of their own: a norm beside such
a product took longer than a kernel before it (benchmarks/NOTES.md). Weights may be asked for before
the kernel before has ended, and long inputs are parted among programs, the last of which joins what
all found.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

from anyformer.ops.kernels.rows import activated, best_of, vector
from anyformer.ops.kernels.tile import dot


@triton.jit
def normed(x_, gain_, out_, site, S: tl.constexpr):
    """One row of x (rows, ins) by its norm, without a shift, in x's type."""
    if S.EARLY:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()
    k = tl.arange(0, S.K)
    here, at = k < S.ins, tl.program_id(0).to(tl.int64) * S.ins + k
    gain = vector(gain_, k, here, True)
    x = tl.load(x_ + at, mask=here, other=0.0).to(tl.float32)
    if S.NORM == "layer":
        x = tl.where(here, x - tl.sum(x, 0) / S.ins, 0.0)
    root = tl.rsqrt(tl.sum(x * x, 0) / S.ins + site.eps)
    tl.store(out_ + at, x * root * gain, mask=here)


@triton.jit
def fetched(w_, n, begin, S: tl.constexpr):
    """Bring the weights of outputs n near, from input `begin` on, a line of 128 bytes at a time."""
    line: tl.constexpr = 128 // (w_.dtype.element_ty.primitive_bitwidth // 8)
    k = begin + tl.arange(0, S.LINES) * line
    there = (n < S.outs)[:, None] & ((k < begin + S.DEPTH) & (k < S.ins))[None, :]
    at = tl.where(there, w_ + n.to(tl.int64)[:, None] * S.ins + k[None, :], w_)
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [at.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def joined(acc, sums_, arrived_, part, share, S: tl.constexpr):
    """What all shares found (M, N), and whether this one is the last to arrive, who knows it."""
    place = tl.arange(0, S.M)[:, None] * S.N + tl.arange(0, S.N)[None, :]
    mine = tl.cast(part, tl.int64) * (S.SHARES * S.M * S.N)
    tl.store(sums_ + mine + share * (S.M * S.N) + place, acc, cache_modifier=".cg")
    tl.debug_barrier()  # of this program: all of it has written before it is counted
    count = tl.atomic_add(arrived_ + part, 1, sem="acq_rel")
    last = count == S.SHARES - 1
    if last:
        acc = tl.full((S.M, S.N), 0.0, tl.float32)
        for i in range(S.SHARES):
            acc += tl.load(sums_ + mine + i * (S.M * S.N) + place, cache_modifier=".cg")
        tl.store(arrived_ + part, 0)
    return acc, last


@triton.jit
def written(acc, gates, maps, more_, out_, n, part, site, S: tl.constexpr):
    """Add biases, activate and write a tile (M, N): products of the map and of its gate."""
    _, bias_, _, gate_bias_ = maps
    m = tl.arange(0, S.M)
    real, wide_n, there = m < site.many, n[None, :], (n < S.outs)[None, :]
    y = acc + vector(bias_, wide_n, there, True)
    if S.GATED:
        y *= activated(gates + vector(gate_bias_, wide_n, there, True), S)
    else:
        y = activated(y, S)
    if S.BEST:
        top, at = best_of(y.to(maps[0].dtype.element_ty).to(tl.float32), wide_n, there, 1, S)
        place = m.to(tl.int64)[:, None] * tl.num_programs(0) + part
        tl.store(out_ + place, top, mask=real[:, None])
        tl.store(more_ + place, at, mask=real[:, None])
    else:
        place = m.to(tl.int64)[:, None] * S.outs + wide_n
        both = real[:, None] & there
        if S.MORE:
            y += tl.load(more_ + place, mask=both, other=0.0).to(tl.float32)
        tl.store(out_ + place, y, mask=both)


@triton.jit
def wide(x_, maps, more_, out_, shares, site, S: tl.constexpr):
    """All rows by as many outputs as a tile has, over a share of the inputs.

    What is given is that of `rows`; shares: sums (programs, SHARES, M, N) in float32 and counts
    of arrivals (programs,), which are 0 before and after.
    """
    w_, _, gate_, _ = maps
    part, share = tl.program_id(0), tl.program_id(1)
    n, k, m = part * S.N + tl.arange(0, S.N), tl.arange(0, S.K), tl.arange(0, S.M)
    begin = share * S.DEPTH
    if S.EARLY:
        cuda.gdc_launch_dependents()
        if S.AHEAD:
            fetched(w_, n, begin, S)
            if S.GATED:
                fetched(gate_, n, begin, S)
        cuda.gdc_wait()
    real, there = (m < site.many)[:, None], (n < S.outs)[:, None]
    x_from = m.to(tl.int64)[:, None] * S.ins + k[None, :]
    w_from = n.to(tl.int64)[:, None] * S.ins + k[None, :]
    acc = tl.full((S.M, S.N), 0.0, tl.float32)
    gates = tl.full((S.M, S.N), 0.0, tl.float32)
    for at in range(begin, begin + S.DEPTH, S.K):
        here = at + k < S.ins
        w = tl.load(w_ + w_from + at, mask=there & here[None, :], other=0.0)
        x = tl.load(x_ + x_from + at, mask=real & here[None, :], other=0.0)
        acc += dot(x, tl.trans(w))
        if S.GATED:
            gate = tl.load(gate_ + w_from + at, mask=there & here[None, :], other=0.0)
            gates += dot(x, tl.trans(gate))
    if S.SHARES > 1:
        acc, last = joined(acc, shares[0], shares[1], part, share, S)
        if last:
            written(acc, gates, maps, more_, out_, n, part, site, S)
    else:
        written(acc, gates, maps, more_, out_, n, part, site, S)
