"""The forward kernel with a shelf: a program for each tile of queries, online over tiles of keys.

Scores are counted in units of 1 / scale, as products of queries and keys come out; tables and bias
come divided by it, and longer by a tile's reach on both sides, so that every row of a near tile is
there. From a tile of keys to the next, the upper block of rows becomes the lower one: each block is
multiplied once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from anyformer.ops.kernels.ends import PARTS
from anyformer.ops.kernels.forward import finish
from anyformer.ops.kernels.shelf import across, begin, handed, lapped, lay_turned, shelf, wait
from anyformer.ops.kernels.tile import (
    LOG2E,
    View,
    anew,
    dot,
    hidden,
    key_range,
    lasts,
    least,
    place,
    plus,
    rows,
    steps,
    turn,
)


class Given(NamedTuple):
    """What kernels with shelves read beside q, k and v."""

    bias: View  # (1, H, pad + R + pad), in float32
    parts: View  # the same, (1, H, pad + R + pad, PARTS), in numbers of 16 bits that add up to it
    query: View  # (1, H or 1, pad + R + pad, T)
    back: View  # the same, or what gradients of queries take in its place
    key: View
    keep: View
    scratch: Any  # of the interpreter


@triton.jit
def of_head(x, h):
    """Where what a head has begins."""
    return x.at + tl.cast(h, tl.int64) * x.h


@triton.jit
def row_of(far, site, F: tl.constexpr):
    """The first row of a table that a tile reads, by its least distance.

    Tiles that have none, in which no key is seen, read some others.
    """
    most = site.high - site.low + 1 + 2 * site.pad - 2 * F.N
    return tl.minimum(tl.maximum(far - site.low + site.pad, 0), most)


@triton.jit
def block(t, h, row, F: tl.constexpr, COUNT: tl.constexpr = 1):
    """N rows of a table, or so many times N, (COUNT N, BD)."""
    n, d = tl.arange(0, COUNT * F.N), tl.arange(0, F.BD)
    at = of_head(t, h) + row * F.T + (n[:, None] * F.T + d[None, :])
    if F.T == F.BD:
        found = tl.load(at)
    else:
        found = tl.load(at, mask=(d < F.T)[None, :], other=0.0)
    return found


@triton.jit
def last(t, h, SIDE: tl.constexpr, site, F: tl.constexpr):
    """The row of a table below the low end (SIDE 0), or above the high one, (BD,) in float32."""
    row = site.pad if SIDE == 0 else site.pad + site.high - site.low
    d = tl.arange(0, F.BD)
    at = of_head(t, h) + row * F.T + d
    return tl.load(at, mask=d < F.T, other=0.0).to(tl.float32)


@triton.jit
def some_rows(
    x, at, left, SIZE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, ALONE: tl.constexpr
):
    """Rows from an address on, as tile.rows.

    Alone: near tiles have many numbers, so that places aren't held in registers throughout. Where
    loads are asked for ahead, Triton can't have that.
    """
    n, d = tl.arange(0, SIZE), tl.arange(0, BLOCK)
    seen = (n < left)[:, None]
    if WIDE != BLOCK:
        seen = seen & (d < WIDE)[None, :]
    if ALONE:
        n += anew()
    return tl.load(at + n[:, None] * x.n + d[None, :], mask=seen, other=0.0)


@triton.jit
def pair_of(k_, v_, at, site, F: tl.constexpr, NEAR: tl.constexpr):
    """A tile of keys and values."""
    b, g, p0 = at
    left = F.N if F.even else site.keys - p0
    ALONE: tl.constexpr = NEAR and F.stages[1] == 1
    k = some_rows(k_, place(k_, b, g, p0), left, F.N, F.D, F.BD, ALONE)
    return k, some_rows(v_, place(v_, b, g, p0), left, F.N, F.E, F.BE, ALONE)


@triton.jit
def chosen(
    FIRST: tl.constexpr,
    END: tl.constexpr,
    EACH: tl.constexpr,
    SIZE: tl.constexpr,
    TYPE: tl.constexpr,
):
    """A left side (SIZE, 32) with a number in some channels.

    It picks what stands in those channels of the right side, and adds it up.
    """
    c = tl.arange(0, 32)[None, :]
    each = tl.full((SIZE, 1), 1.0, tl.float32) * tl.where((c >= FIRST) & (c < END), EACH, 0.0)
    return left_side(each.to(TYPE), 32)


@triton.jit
def in_channels(at, ROWS: tl.constexpr, WIDE: tl.constexpr):
    """Rows of a few numbers that lie close, (ROWS, 32), the other channels 0."""
    n, c = tl.arange(0, ROWS)[:, None], tl.arange(0, 32)[None, :]
    return tl.load(at + (n * WIDE + c), mask=(n >= 0) & (c < WIDE), other=0.0)


@triton.jit
def products(own, some, given, h, row, F: tl.constexpr):
    """Queries by a block of rows, with the bias of those rows, (M, N).

    own: queries, and what picks a bias's parts; by a product, since a number for each column of a
    tile would be sixteen loads.
    """
    by = dot(own[0], tl.trans(some))
    if F.bias:
        parts = in_channels(of_head(given.parts, h) + row * PARTS, F.N, PARTS)
        by = plus(own[1], tl.trans(parts), by)
    return by


@triton.jit
def alike(row, x, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """A tile of x's type, (SIZE, BLOCK), each of whose rows is the same."""
    return tl.broadcast_to(row[None, :].to(x.dtype), [SIZE, BLOCK])


@triton.jit
def far_score(q, k, given, h, site, F: tl.constexpr, SIDE: tl.constexpr, TURNED: tl.constexpr):
    """The scores of a tile all below the low end (SIDE 0) or above the high one (2).

    What a program's own side brings is a sum that all its tiles share. What the other side brings
    is a product: if a tile were read by threads too, Triton would keep one copy of it, and load the
    next one there while products still read it.
    """
    s = dot(k, tl.trans(q)) if TURNED else dot(q, tl.trans(k))
    if F.bias:
        row = site.pad if SIDE == 0 else site.pad + site.high - site.low
        s += tl.load(of_head(given.bias, h) + row)
    if F.query:
        end = last(given.query, h, SIDE, site, F)
        if TURNED:
            s = plus(alike(end, k, F.N, F.BD), tl.trans(q), s)
        else:
            s += tl.sum(q.to(tl.float32) * end[None, :], 1)[:, None]
    if F.key:  # it could be part of the queries, but in 16 bits a short one would be lost there
        end = last(given.key, h, SIDE, site, F)
        if TURNED:
            s += tl.sum(k.to(tl.float32) * end[None, :], 1)[:, None]
        else:
            s = plus(alike(end, q, F.M, F.BD), tl.trans(k), s)
    return s


@triton.jit
def blocks(given, h, row, F: tl.constexpr):
    """The upper block of rows for queries and both for keys; 0 for what isn't there.

    They are asked for together with keys and values, before anything waits.
    """
    some = block(given.query, h, row + F.N, F) if F.query else 0
    return some, block(given.key, h, row, F, 2) if F.key else 0


@triton.jit
def key_part(s, k, some, on, F: tl.constexpr):
    """Scores of a near tile with what keys bring; some: both blocks of rows.

    One product of both reads keys once, but leaves twice as many numbers in registers.
    """
    if F.key:
        by = dot(k, tl.trans(some))
        wait(False)
        lay_turned(on, by, F.N, 0, 2)
        s += across(on, s, F.N, False)
    return s


@triton.jit
def query_part(own, some, given, h, row, F: tl.constexpr):
    """What queries bring by some rows that are new, (M, N); 0 where they bring nothing.

    The tile before was that of earlier keys.
    """
    return products(own, some, given, h, row + F.N, F) if F.query else 0


@triton.jit
def query_score(s, by, on, F: tl.constexpr, ALONE: tl.constexpr):
    """Scores of a near tile with what queries bring; alone: as of shelf.handed."""
    if F.query:
        s += handed(on, by, s, F.N, False, ALONE)
    return s


@triton.jit
def own_shelf(given, F: tl.constexpr):
    """The shelf of a program for queries, or 0 where they bring nothing."""
    return shelf(given.scratch, 0) if F.query else 0


@triton.jit
def open_shelf(own, given, on, h, row, F: tl.constexpr, CUT: tl.constexpr):
    """Lay down what queries bring to the first tile alone."""
    if F.query:
        some = block(given.query, h, row, F)
        begin(on, products(own, some, given, h, row, F), F.N, False, CUT)


@triton.jit
def seen(s, least_, p0, keep, site, F: tl.constexpr, NEAR: tl.constexpr, TURNED: tl.constexpr):
    """Scores with -inf where a key isn't seen; most tiles have none, which is asked first.

    Before shelves bring their part: where loads are asked for ahead, Triton moves a branch, and all
    that it reads, to the front of the loop, but not the barriers that what it reads waits for.
    """
    most, n = least_ + (F.M + F.N - 2), p0 + tl.arange(0, F.N)
    some = p0 + F.N > (0 if F.pads else site.keys)
    if F.causal and NEAR:
        some = some | (most > 0)
    if F.window:
        some = some | (least_ <= -site.width) | (most >= site.width)
    if some:
        p = n[:, None] if TURNED else n[None, :]
        s = hidden(s, steps(least_, F, TURNED), p, keep, site, F, NEAR)
    return s


@triton.jit
def kept(own, site, F: tl.constexpr):
    """Keep what products read from registers, as of held, to the end of a loop."""
    lasts(own[0], site.queries)
    if F.bias:
        lasts(own[1], site.queries)


@triton.jit
def softer(state, s, v, site):
    """One step of the online softmax: sum of values, largest score in units of log 2, weights."""
    acc, top, total = state
    unit = site.scale * LOG2E
    new = tl.maximum(top, tl.max(s, 1) * unit)
    safe = tl.where(new == float("-inf"), 0.0, new)
    p = tl.exp2(s * unit - safe[:, None])
    shrink = tl.exp2(top - safe)
    acc = acc * shrink[:, None] + dot(p.to(v.dtype), v)
    return acc, new, total * shrink + tl.sum(p, 1)


@triton.jit
def near(own, pair, state, given, shelves, at, span, site, F: tl.constexpr):
    """The state behind tiles within the tables' reach; at: batch row, head and first query."""
    k_, v_ = pair
    on, other = shelves
    b, h, first = at
    keep = given.keep.at + tl.cast(b, tl.int64) * given.keep.b
    row = row_of(least(first, span[0] * F.N, site, F), site, F)
    open_shelf(own, given, on, h, row, F, False)
    for t in tl.range(span[0], span[1], num_stages=F.stages[1]):
        p0 = t * F.N
        k, v = pair_of(k_, v_, (b, h // site.group, p0), site, F, True)
        far = least(first, p0, site, F)
        row = row_of(far, site, F)
        some = blocks(given, h, row, F)
        s, by = dot(own[0], tl.trans(k)), query_part(own, some[0], given, h, row, F)
        s = query_score(seen(s, far, p0, keep, site, F, True, False), by, on, F, not F.key)
        s = key_part(s, k, some[1], other, F)
        state = softer(state, s, v, site)
    kept(own, site, F)
    return state


@triton.jit
def beyond(q, pair, state, given, at, span, site, F: tl.constexpr, SIDE: tl.constexpr):
    """The state behind tiles all below the low end (SIDE 0) or above the high one (2)."""
    k_, v_ = pair
    b, h, first = at
    keep = given.keep.at + tl.cast(b, tl.int64) * given.keep.b
    for t in tl.range(span[0], span[1], num_stages=F.stages[0]):
        p0 = t * F.N
        k, v = pair_of(k_, v_, (b, h // site.group, p0), site, F, False)
        s = far_score(q, k, given, h, site, F, SIDE, False)
        s = seen(s, least(first, p0, site, F), p0, keep, site, F, False, False)
        state = softer(state, s, v, site)
    return state


@triton.jit
def left_side(x, SIZE: tl.constexpr):
    """A tile (N, SIZE) as a product leaves it, so that products read it from registers.

    With both sides in shared memory they would wait for it.
    """
    a, b = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    return dot(x, tl.where(a == b, 1.0, 0.0).to(x.dtype)).to(x.dtype)


@triton.jit
def held(q, F: tl.constexpr):
    """Queries, and what picks a bias's parts, as left sides of products."""
    return left_side(q, F.BD), chosen(0, 3, 1.0, F.M, q.dtype) if F.bias else 0


@triton.jit
def shelved(q_, k_, v_, outs, lse_, given, site, F: tl.constexpr):
    """out (B, H, Q, E) and lse (B, H, Q) in units of log 2."""
    first, bh = turn(F), tl.program_id(1)
    b, h = bh // site.heads, bh % site.heads
    q = rows(q_, place(q_, b, h, first), site.queries - first, F.M, F.D, F.BD)
    own = held(q, F)
    if F.query and F.key:
        shelves = lapped(given.scratch, F.N)
    else:
        shelves = own_shelf(given, F), shelf(given.scratch, 1) if F.key else 0
    acc = tl.full((F.M, F.BE), 0.0, tl.float32)
    top = tl.full((F.M,), float("-inf"), tl.float32)
    state = acc, top, tl.full((F.M,), 0.0, tl.float32)
    bounds = key_range(first, 0, site, F)
    for side in tl.static_range(3):  # beyond the low end, between, beyond the high end
        span, at = (bounds[side], bounds[side + 1]), (b, h, first)
        if side == 1:
            state = near(own, (k_, v_), state, given, shelves, at, span, site, F)
        elif (side == 0 and F.left) or (side == 2 and F.right):
            state = beyond(own[0], (k_, v_), state, given, at, span, site, F, side)
    acc, top, total = state
    gain = 0.0
    if F.other and F.query:
        by = tl.sum(q.to(tl.float32) * last(given.query, h, 0, site, F)[None, :], 1)
        gain = by * (site.scale * LOG2E)
    finish(outs, lse_, at, (acc, total, top, total), gain, site, F)
