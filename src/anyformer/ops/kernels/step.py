"""The kernel for a decoding step's attention: all between the map to q, k, v and the map out.

A program has one key head of one row, and a share of the keys that are remembered. The first share
turns the new key, remembers it, and sees it as it came. Shares that are done leave a part each; the
last one to arrive joins them, so that no second kernel waits for the first.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

from anyformer.ops.kernels.tile import dot, place, rows


@triton.jit
def heads(x_, m, count, wave, S: tl.constexpr):
    """Heads m of a row, (M, BD), turned where the shape says so; wave: cosines and sines."""
    d = tl.arange(0, S.BD)
    there = (m < count)[:, None] & (d < S.D)[None, :]
    x = tl.load(x_ + m[:, None] * S.D + d[None, :], mask=there, other=0.0)
    if S.HALF:
        if S.PAIRS:
            low, other, at = d % 2 == 0, d ^ 1, d // 2
        else:
            low = d < S.HALF
            other, at = tl.where(low, d + S.HALF, d - S.HALF), tl.where(low, d, d - S.HALF)
        turns = d < 2 * S.HALF
        beside = tl.load(
            x_ + m[:, None] * S.D + other[None, :], mask=there & turns[None, :], other=0.0
        )
        cos = tl.load(wave[0] + at, mask=turns, other=1.0)
        sin = tl.load(wave[1] + at, mask=turns, other=0.0)
        sin = tl.where(low, -sin, sin)
        y = x.to(tl.float32) * cos[None, :] + beside.to(tl.float32) * sin[None, :]
        x = y.to(x.dtype)
    return x


@triton.jit
def begun(value, top, part, S: tl.constexpr):
    """The state of a softmax: sums of values, tops and totals, with the new key where there is one.

    value (M, BE) and top (M,) are what queries make of it alone, which the first share sees. One
    query head has a softmax for each place of a tile, so that nothing is compared until the end.
    """
    if S.M == 1:
        here = (tl.arange(0, S.N) == 0) & (part == 0)
        acc = tl.where(here[:, None], value, 0.0)
        top = tl.where(here, top, float("-inf"))
    else:
        here = tl.full((S.M,), 0, tl.int32) == part
        acc = tl.where(here[:, None], value, 0.0)
        top = tl.where(here, top, float("-inf"))
    return acc, top, here.to(tl.float32)


@triton.jit
def softer(state, q, k, v, seen, scale, S: tl.constexpr):
    """One step of an online softmax: q (M, BD) over k (N, BD) and v (N, BE)."""
    acc, top, total = state
    if S.M == 1:
        s = tl.sum(q.to(tl.float32) * k.to(tl.float32), 1) * scale
        s = tl.where(seen, s, float("-inf"))
        new = tl.maximum(top, s)
        sure = tl.where(new == float("-inf"), 0.0, new)
        p, shrink = tl.exp(s - sure), tl.exp(top - sure)
        acc = acc * shrink[:, None] + p[:, None] * v.to(tl.float32)
        total = total * shrink + p
    else:
        s = tl.where(seen[None, :], dot(q, tl.trans(k)) * scale, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        sure = tl.where(new == float("-inf"), 0.0, new)
        p, shrink = tl.exp(s - sure[:, None]), tl.exp(top - sure)
        acc = acc * shrink[:, None] + dot(p.to(v.dtype), v)
        total = total * shrink + tl.sum(p, 1)
    return acc, new, total


@triton.jit
def whole(state, S: tl.constexpr):
    """The state of each query head: (M, BE), (M,) and (M,)."""
    acc, top, total = state
    if S.M == 1:
        most = tl.max(top, 0, keep_dims=True)
        weight = tl.exp(top - tl.where(most == float("-inf"), 0.0, most))
        acc = tl.sum(acc * weight[:, None], 0, keep_dims=True)
        top, total = most, tl.sum(total * weight, 0, keep_dims=True)
    return acc, top, total


@triton.jit
def joined(parts, bg, active, S: tl.constexpr):
    """The parts of all active shares as one, (GROUP, BE)."""
    acc_, top_, total_ = parts[0], parts[1], parts[2]
    i, m, e = tl.arange(0, S.PARTS), tl.arange(0, S.GROUP), tl.arange(0, S.BE)
    row_ = (bg * S.SHARES + i[:, None]) * S.group + m[None, :]  # (PARTS, GROUP)
    there = (i < active)[:, None] & (m < S.group)[None, :]
    top = tl.load(top_ + row_, mask=there, other=float("-inf"), cache_modifier=".cg")
    total = tl.load(total_ + row_, mask=there, other=0.0, cache_modifier=".cg")
    both = there[:, :, None] & (e < S.E)[None, None, :]
    at = row_[:, :, None].to(tl.int64) * S.E + e[None, None, :]
    acc = tl.load(acc_ + at, mask=both, other=0.0, cache_modifier=".cg")
    most = tl.max(top, 0)
    most = tl.where(most == float("-inf"), 0.0, most)
    weight = tl.exp(top - most[None, :])
    sure = tl.sum(total * weight, 0)
    return tl.sum(acc * weight[:, :, None], 0) / tl.where(sure > 0, sure, 1.0)[:, None]


@triton.jit
def remembered(keys, values, keep_, b, g, j, last, slot, S: tl.constexpr):
    """A tile of keys and values from j on, and which of them are seen (N,)."""
    at = j + tl.arange(0, S.N)
    seen = at < last
    if S.RING:
        seen = seen & (at != slot)  # what is there is replaced in this step
    if S.KEPT:
        seen = seen & (tl.load(keep_ + at, mask=seen, other=0) != 0)
    k = rows(keys, place(keys, b, g, j), last - j, S.N, S.D, S.BD)
    v = rows(values, place(values, b, g, j), last - j, S.N, S.E, S.BE)
    return k, v, seen


@triton.jit
def share(at, part, room, S: tl.constexpr):
    """Where the new key belongs, a share's first key and its end, and how many shares have any."""
    slot, first = at, 0
    if S.RING:
        slot = at % room
    elif S.WINDOW:
        first = tl.maximum(at - S.WINDOW + 1, 0)
    end = tl.minimum(at, room)
    each = tl.maximum(tl.cdiv(tl.cdiv(end - first, S.SHARES), S.N), 1) * S.N
    begin = first + part * each
    return slot, begin, tl.minimum(begin + each, end), tl.maximum(tl.cdiv(end - first, each), 1)


@triton.jit
def newest(own, key_, value_, g, q, wave, scale, S: tl.constexpr):
    """Remember the new key and value -> what queries make of them alone: sum (M, BE) and top.

    own: keys and values of a row of y; key_ and value_ are where this head's belong.
    """
    only, d, e = tl.arange(0, 1), tl.arange(0, S.BD), tl.arange(0, S.BE)
    key = heads(own + g * S.D, only, 1, wave, S)  # (1, BD)
    value = tl.load(own + S.heads * S.D + g * S.E + e, mask=e < S.E, other=0.0)
    tl.store(key_ + d[None, :], key, mask=(d < S.D)[None, :])
    tl.store(value_ + e, value, mask=e < S.E)
    top = tl.sum(q.to(tl.float32) * key.to(tl.float32), 1) * scale
    return tl.broadcast_to(value.to(tl.float32)[None, :], (S.M, S.BE)), top


@triton.jit
def ended(acc, top, total, bg, part, active, parts, out_, S: tl.constexpr):
    """Write what a share found: to out where it is alone, else as a part, the last joining all."""
    m, n, e = tl.arange(0, S.M), tl.arange(0, S.GROUP), tl.arange(0, S.BE)
    to = tl.cast(bg, tl.int64) * S.group
    high, real = (e < S.E)[None, :], m < S.group
    if active == 1:
        sure = tl.where(total > 0, total, 1.0)
        at = (to + m)[:, None] * S.E + e[None, :]
        tl.store(out_ + at, acc / sure[:, None], mask=real[:, None] & high)
    else:
        left = (tl.cast(bg, tl.int64) * S.SHARES + part) * S.group + m
        at = left[:, None] * S.E + e[None, :]
        tl.store(parts[0] + at, acc, mask=real[:, None] & high, cache_modifier=".cg")
        tl.store(parts[1] + left, top, mask=real, cache_modifier=".cg")
        tl.store(parts[2] + left, total, mask=real, cache_modifier=".cg")
        tl.debug_barrier()  # of this program: all of it has written before it is counted
        count = tl.atomic_add(parts[3] + bg, 1, sem="acq_rel")
        if count == active - 1:
            whole = joined(parts, bg, active, S)
            mine = (n < S.group)[:, None] & high
            tl.store(out_ + (to + n)[:, None] * S.E + e[None, :], whole, mask=mine)
            tl.store(parts[3] + bg, 0)


@triton.jit
def step(y_, cache, beside, parts, out_, site, S: tl.constexpr):
    """y (B, (H + G) D + G E) -> out (B, H E).

    cache: keys and values (B, G, L, …), the new position (1,); beside: cosines and sines
    (1 or B, HALF), bytes of what is kept (B, L); parts: sums (B, G, shares, group, E), their tops
    and totals, and counts of arrivals (B G), which are 0 before and after.
    """
    keys, values, at_ = cache
    cos_, sin_, keep_ = beside
    bg, part = tl.program_id(0), tl.program_id(1)
    if S.EARLY:
        cuda.gdc_launch_dependents()
    b, g = tl.cast(bg // S.heads, tl.int64), bg % S.heads
    slot, begin, last, active = share(tl.load(at_).to(tl.int32), part, site.room, S)
    if part < active:
        keep_ += b * site.kept
        k, v, seen = remembered(keys, values, keep_, b, g, begin, last, slot, S)
        if S.EARLY:  # the new position and older keys were there before this step began
            cuda.gdc_wait()
        asked = y_ + b * ((S.heads * S.group + S.heads) * S.D + S.heads * S.E)
        wave = (cos_ + b * S.APART * S.HALF, sin_ + b * S.APART * S.HALF)
        q = heads(asked + g * S.group * S.D, tl.arange(0, S.M), S.group, wave, S)
        value, top = tl.full((S.M, S.BE), 0.0, tl.float32), tl.full((S.M,), 0.0, tl.float32)
        if part == 0:
            own = asked + S.heads * S.group * S.D
            key_, value_ = place(keys, b, g, slot), place(values, b, g, slot)
            value, top = newest(own, key_, value_, g, q, wave, site.scale, S)
        state = begun(value, top, part, S)
        for j in range(begin, last, S.N):
            now_k, now_v, now = k, v, seen
            k, v, seen = remembered(keys, values, keep_, b, g, j + S.N, last, slot, S)
            state = softer(state, q, now_k, now_v, now, site.scale, S)
        acc, top, total = whole(state, S)
        ended(acc, top, total, bg, part, active, parts, out_, S)
