"""The kernel for tens of rows of a decoding step: norm, product, activation and sum in one.

It does what `rows` does (kernels/rows.py) and is made for products whose time is that of their
start: weights are asked for before the kernel before has ended, what a norm sums up is a product
with ones beside the product itself, and long inputs are parted among programs, the last of which
joins what all found.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

from anyformer.ops.kernels.rows import activated, best_of, scaled, vector
from anyformer.ops.kernels.tile import dot


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
def written(found, maps, norm, ends, n, part, site, S: tl.constexpr):
    """Divide by what the norm found, add, activate and write a tile (M, N).

    found: products of map and gate, sums and squares of the norm's input; ends: more and out.
    """
    acc, gates, total, squares = found
    more_, out_ = ends
    _, bias_, _, gate_bias_ = maps
    _, sums_, gate_sums_ = norm
    m = tl.arange(0, S.M)
    real, wide_n, there = m < site.many, n[None, :], (n < S.outs)[None, :]
    sums = vector(sums_, wide_n, there, S.NORM == "layer")
    y = scaled(acc, total, squares, sums, site.eps, S) + vector(bias_, wide_n, there, True)
    if S.GATED:
        sums = vector(gate_sums_, wide_n, there, S.NORM == "layer")
        gate = scaled(gates, total, squares, sums, site.eps, S)
        y *= activated(gate + vector(gate_bias_, wide_n, there, True), S)
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
def wide(x_, maps, norm, more_, out_, shares, site, S: tl.constexpr):
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
        fetched(w_, n, begin, S)
        if S.GATED:
            fetched(gate_, n, begin, S)
        cuda.gdc_wait()
    real, there = (m < site.many)[:, None], (n < S.outs)[:, None]
    x_from = m.to(tl.int64)[:, None] * S.ins + k[None, :]
    w_from = n.to(tl.int64)[:, None] * S.ins + k[None, :]
    acc = tl.full((S.M, S.N), 0.0, tl.float32)
    gates = tl.full((S.M, S.N), 0.0, tl.float32)
    totals = tl.full((S.M, 16), 0.0, tl.float32)
    squares = tl.full((S.M, 16), 0.0, tl.float32)
    ones = tl.full((S.K, 16), 1.0, tl.float32).to(x_.dtype.element_ty)
    for at in range(begin, begin + S.DEPTH, S.K):
        here = at + k < S.ins
        w = tl.load(w_ + w_from + at, mask=there & here[None, :], other=0.0)
        x = tl.load(x_ + x_from + at, mask=real & here[None, :], other=0.0)
        if S.NORM != "none":
            far = x.to(tl.float32)
            if S.NORM == "layer":
                totals += dot(x, ones)
            near = (far * far).to(w.dtype)  # and what that leaves out: sums of 17 digits and more
            squares += dot(near, ones) + dot((far * far - near.to(tl.float32)).to(w.dtype), ones)
            gain = tl.load(norm[0] + at + k, mask=here, other=0.0).to(tl.float32)
            x = (far * gain[None, :]).to(w.dtype)
        acc += dot(x, tl.trans(w))
        if S.GATED:
            gate = tl.load(gate_ + w_from + at, mask=there & here[None, :], other=0.0)
            gates += dot(x, tl.trans(gate))
    total, square = tl.max(totals, 1)[:, None], tl.max(squares, 1)[:, None]  # all columns agree
    if S.SHARES > 1:
        acc, last = joined(acc, shares[0], shares[1], part, share, S)
        if last:
            written((acc, gates, total, square), maps, norm, (more_, out_), n, part, site, S)
    else:
        written((acc, gates, total, square), maps, norm, (more_, out_), n, part, site, S)
