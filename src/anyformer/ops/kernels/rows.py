"""Kernels for the few rows of a decoding step: norm, product, activation and sum in one each.

A norm needs no pass of its own. With a gain g and a shift b of its channels
    norm(x) · wᵀ = r · (Σ w g x - mean · Σ w g) + Σ w b,  r = 1 / sqrt(var + eps),
and the sums over w g and w b are known before; mean and var are summed up beside the product.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

from anyformer.ops.kernels.tile import dot


@triton.jit
def activated(y, S: tl.constexpr):
    """The activation that a shape names."""
    if S.ACT == "gelu":
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    elif S.ACT == "gelu_tanh":
        y = y * tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
    elif S.ACT == "quick_gelu":
        y = y * tl.sigmoid(1.702 * y)
    elif S.ACT == "relu":
        y = tl.maximum(y, 0.0)
    elif S.ACT == "relu2":
        y = tl.maximum(y, 0.0)
        y = y * y
    elif S.ACT == "silu":
        y = y * tl.sigmoid(y)
    elif S.ACT == "tanh":
        y = 2.0 * tl.sigmoid(2.0 * y) - 1.0
    elif S.ACT == "sigmoid":
        y = tl.sigmoid(y)
    return y


@triton.jit
def scaled(y, total, squares, sums, eps, S: tl.constexpr):
    """Products y (…, N) of what a norm has not divided yet; total and squares (…) of its input."""
    if S.NORM == "layer":
        mean = total / S.ins
        root = tl.rsqrt(tl.maximum(squares / S.ins - mean * mean, 0.0) + eps)
        y = root * (y - mean * sums)
    elif S.NORM == "root":
        y = tl.rsqrt(squares / S.ins + eps) * y
    return y


@triton.jit
def vector(x_, n, there, USED: tl.constexpr):
    """Numbers of outputs n in float32, which kernels ask for before they need them."""
    if USED:
        x = tl.load(x_ + n, mask=there, other=0.0).to(tl.float32)
    else:
        x = tl.full(n.shape, 0.0, tl.float32)
    return x


@triton.jit
def ahead(maps, gain_, start, at, there, S: tl.constexpr):
    """Weights (N, K) of both maps and the norm's gain (K,) from input `at` on.

    Weights are read once in a step, so that none need stay near.
    """
    k = tl.arange(0, S.K)
    here = at + k < S.ins
    both = there[:, None] & here[None, :]
    w = tl.load(maps[0] + start + at, mask=both, other=0.0, eviction_policy=S.EVICT)
    gate = w
    if S.GATED:
        gate = tl.load(maps[2] + start + at, mask=both, other=0.0, eviction_policy=S.EVICT)
    return w, gate, vector(gain_, at + k, here, S.NORM != "none")


@triton.jit
def best_of(y, n, there, AXIS: tl.constexpr, S: tl.constexpr):
    """The greatest of a tile's outputs along an axis, and the first of them; NaN is greatest.

    They are compared as x's type holds them, in which others would read them.
    """
    y = tl.where(y != y, float("inf"), y)
    y = tl.where(there, y, float("-inf"))
    top = tl.max(y, AXIS, keep_dims=True)
    return top, tl.min(tl.where(y == top, n, S.outs), AXIS, keep_dims=True)


@triton.jit
def row(x_, maps, norm, more_, out_, site, S: tl.constexpr):
    """One row by as many outputs as a tile has; the row varies first, so that weights are reused.

    x (rows, ins); maps: weight (outs, ins) and bias (outs,) of the map and of the gate; norm: gain
    (ins,) and sums (outs,) of both maps; more, out (rows, outs). Biases and sums are float32. For
    the best alone, out (rows, programs) are the greatest of each program and more their places.
    Weights are asked for a tile ahead, the first ones before the kernel before has ended.
    """
    _, bias_, _, gate_bias_ = maps
    gain_, sums_, gate_sums_ = norm
    m = (tl.program_id(0) % site.many).to(tl.int64)
    part = tl.program_id(0) // site.many
    n = part * S.N + tl.arange(0, S.N)
    k = tl.arange(0, S.K)
    there = n < S.outs
    start = n.to(tl.int64)[:, None] * S.ins + k[None, :]
    w, gate, gain = ahead(maps, gain_, start, 0, there, S)
    bias, gate_bias = vector(bias_, n, there, True), vector(gate_bias_, n, there, S.GATED)
    sums = vector(sums_, n, there, S.NORM == "layer")
    gate_sums = vector(gate_sums_, n, there, S.GATED and S.NORM == "layer")
    if S.EARLY:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()
    more = vector(more_, m * S.outs + n, there, S.MORE)
    acc = tl.full((S.N, S.K), 0.0, tl.float32)
    gates = tl.full((S.N, S.K), 0.0, tl.float32)
    total, squares = tl.full((S.K,), 0.0, tl.float32), tl.full((S.K,), 0.0, tl.float32)
    for at in range(0, S.ins, S.K):
        x = tl.load(x_ + m * S.ins + at + k, mask=at + k < S.ins, other=0.0).to(tl.float32)
        now, then, by = w, gate, gain
        w, gate, gain = ahead(maps, gain_, start, at + S.K, there, S)
        if S.NORM != "none":
            total += x
            squares += x * x
            x = x * by
        acc += now.to(tl.float32) * x[None, :]
        if S.GATED:
            gates += then.to(tl.float32) * x[None, :]
    total_, squares_ = tl.sum(total, 0), tl.sum(squares, 0)
    y = scaled(tl.sum(acc, 1), total_, squares_, sums, site.eps, S) + bias
    if S.GATED:
        other = scaled(tl.sum(gates, 1), total_, squares_, gate_sums, site.eps, S)
        y *= activated(other + gate_bias, S)
    else:
        y = activated(y, S)
    if S.BEST:
        top, at = best_of(y.to(x_.dtype.element_ty).to(tl.float32), n, there, 0, S)
        place = m * (tl.num_programs(0) // site.many) + part + tl.arange(0, 1)
        tl.store(out_ + place, top)
        tl.store(more_ + place, at)
    else:
        tl.store(out_ + m * S.outs + n, y + more, mask=there)


@triton.jit
def rows(x_, maps, norm, more_, out_, site, S: tl.constexpr):
    """The same for a tile of rows, by products of tiles."""
    w_, bias_, gate_, gate_bias_ = maps
    gain_, sums_, gate_sums_ = norm
    m = tl.program_id(1) * S.M + tl.arange(0, S.M)
    n = tl.program_id(0) * S.N + tl.arange(0, S.N)
    k = tl.arange(0, S.K)
    real, there = m < site.many, n < S.outs
    acc = tl.full((S.M, S.N), 0.0, tl.float32)
    gates = tl.full((S.M, S.N), 0.0, tl.float32)
    total, squares = tl.full((S.M,), 0.0, tl.float32), tl.full((S.M,), 0.0, tl.float32)
    x_from = m.to(tl.int64)[:, None] * S.ins + k[None, :]
    w_from = n.to(tl.int64)[:, None] * S.ins + k[None, :]
    if S.EARLY:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()
    for at in range(0, S.ins, S.K):
        here = at + k < S.ins
        w = tl.load(w_ + w_from + at, mask=there[:, None] & here[None, :], other=0.0)
        x = tl.load(x_ + x_from + at, mask=real[:, None] & here[None, :], other=0.0)
        if S.NORM != "none":
            wide = x.to(tl.float32)
            total += tl.sum(wide, 1)
            squares += tl.sum(wide * wide, 1)
            gain = tl.load(gain_ + at + k, mask=here, other=0.0).to(tl.float32)
            x = (wide * gain[None, :]).to(w.dtype)
        acc += dot(x, tl.trans(w))
        if S.GATED:
            gate = tl.load(gate_ + w_from + at, mask=there[:, None] & here[None, :], other=0.0)
            gates += dot(x, tl.trans(gate))
    total_, squares_ = total[:, None], squares[:, None]
    wide_n, wide_there = n[None, :], there[None, :]
    layered = S.NORM == "layer"
    sums = vector(sums_, wide_n, wide_there, layered)
    y = scaled(acc, total_, squares_, sums, site.eps, S)
    y += vector(bias_, wide_n, wide_there, True)
    if S.GATED:
        sums = vector(gate_sums_, wide_n, wide_there, layered)
        gate = scaled(gates, total_, squares_, sums, site.eps, S)
        y *= activated(gate + vector(gate_bias_, wide_n, wide_there, True), S)
    else:
        y = activated(y, S)
    if S.BEST:
        top, at = best_of(y.to(x_.dtype.element_ty).to(tl.float32), wide_n, wide_there, 1, S)
        place = m.to(tl.int64)[:, None] * tl.num_programs(0) + tl.program_id(0)
        tl.store(out_ + place, top, mask=real[:, None])
        tl.store(more_ + place, at, mask=real[:, None])
    else:
        place = m.to(tl.int64)[:, None] * S.outs + wide_n
        both = real[:, None] & wide_there
        if S.MORE:
            y += tl.load(more_ + place, mask=both, other=0.0).to(tl.float32)
        tl.store(out_ + place, y, mask=both)


@triton.jit
def best(tops_, places_, tokens_, broken_, site, S: tl.constexpr):
    """The first of the greatest of a row's tops (rows, many), and whether that is no number.

    tokens (rows,) are replaced; broken (rows,) of bytes only ever become 1.
    """
    if S.EARLY:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()
    m = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, S.N)
    top = tl.full((S.N,), float("-inf"), tl.float32)
    at = tl.full((S.N,), 2147483647, tl.int32)
    for j in range(0, site.many, S.N):
        here = j + i < site.many
        found = tl.load(tops_ + m * site.many + j + i, mask=here, other=float("-inf"))
        place = tl.load(places_ + m * site.many + j + i, mask=here, other=2147483647)
        first = (found > top) | ((found == top) & (place < at))
        top, at = tl.where(first, found, top), tl.where(first, place, at)
    most = tl.max(top, 0)
    token = tl.min(tl.where(top == most, at, 2147483647), 0)
    tl.store(tokens_ + m, token.to(tl.int64))
    if tl.abs(most) == float("inf"):
        tl.store(broken_ + m, 1)
