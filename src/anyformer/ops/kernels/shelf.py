"""Shelves: shared memory of a program's own, where a tile is laid by distance and taken by key.

Products of queries, or keys, with rows of a table come out by distance, and scores want them by
key: each row begins a place later than the one before. Gradients of scores go the other way.
Gathers go through shared memory twice and shuffle in between. Here numbers are laid down in 16 bits
at one place and taken up from another, an instruction each, as the compiler knows all places but
the thread's own.

Places count numbers of 16 bits. There are two shelves, for products and for gradients. Where
Triton's interpreter runs, they are memory that the launcher gives.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import INTERPRETED, LOG2E, dot, table

NUMBERS = tl.constexpr(9216)  # of a shelf; its bytes are a multiple of 1024, where tiles begin
ROWS = tl.constexpr(64)  # of a table at a time
PAD = tl.constexpr(8)  # numbers between rows: those that a warp takes lie in banks of their own
ODD = tl.constexpr(9)  # the same between rows that begin at odd and even places in turn
MOST = tl.constexpr(65504.0)  # the largest number of float16
ROOM = tl.constexpr("{ .shared .align 1024 .b8 shelf[18432]; mov.u32 $0, shelf; }")
LAY = tl.constexpr(
    "{ .reg .b32 two; cvt.rn.satfinite.f16x2.f32 two, $5, $4; st.shared.b32 [$2], two;"
    " mov.b32 $0, 0; mov.b32 $1, 0; }"
)
EACH = tl.constexpr(  # of two numbers; they may begin at an odd place
    "{ .reg .b32 two; .reg .b16 a, b; cvt.rn.TYPEx2.f32 two, $5, $4; mov.b32 {a, b}, two;"
    " st.shared.b16 [$2], a; st.shared.b16 [$3], b; mov.b32 $0, 0; mov.b32 $1, 0; }"
)
HALVES = tl.constexpr(EACH.value.replace("TYPE", "f16"))
BRAINS = tl.constexpr(EACH.value.replace("TYPE", "bf16"))
ONE = tl.constexpr("ld.shared.b16 $0, [$1];")  # what comes last says how threads share the tile
TWO = tl.constexpr("ld.shared.b32 $0, [$1];")
WAIT = tl.constexpr("bar.warp.sync 0xffffffff; mov.b32 $0, 0;")


@triton.jit
def shelf(scratch, NUMBER: tl.constexpr):
    """The address of a new shelf."""
    if INTERPRETED:
        found = scratch.at + NUMBER * NUMBERS
    else:
        found = tl.inline_asm_elementwise(ROOM, "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    return found


@triton.jit
def wait(ALONE: tl.constexpr):
    """Until what is laid can be taken, or laid over: by a warp for itself, or by all."""
    if ALONE and not INTERPRETED:
        tl.inline_asm_elementwise(WAIT, "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    else:
        tl.debug_barrier()


@triton.jit
def lay(on, at, value):
    """Put a tile of float32 down at its places, rounded to float16; two at even places at once."""
    if INTERPRETED:
        tl.store(on + at, tl.minimum(tl.maximum(value, -MOST), MOST).to(tl.float16).to(tl.float32))
    else:
        tl.inline_asm_elementwise(
            LAY, "=r,=r,r,r,f,f", [on + at * 2, value], dtype=tl.int32, is_pure=False, pack=2
        )


@triton.jit
def lay_each(on, at, value, TYPE: tl.constexpr):
    """Put a tile of float32 down at its places, rounded to a type of 16 bits."""
    if INTERPRETED:
        tl.store(on + at, value.to(TYPE).to(tl.float32))
    else:
        ASM: tl.constexpr = HALVES if TYPE == tl.float16 else BRAINS
        tl.inline_asm_elementwise(
            ASM, "=r,=r,r,r,f,f", [on + at * 2, value], dtype=tl.int32, is_pure=False, pack=2
        )


@triton.jit
def take(on, at, like):
    """What lies at places, in float32, in a tile that lies as `like` does."""
    if INTERPRETED:
        found = tl.load(on + at)
    else:
        found = tl.inline_asm_elementwise(
            ONE, "=h,r,f", [on + at * 2, like], dtype=tl.float16, is_pure=False, pack=1
        )
    return found.to(tl.float32)


@triton.jit
def take_two(on, at, like, TYPE: tl.constexpr):
    """The same in the type of 16 bits that lies there, two at an even place at once."""
    if INTERPRETED:
        found = tl.load(on + at).to(TYPE)
    else:
        found = tl.inline_asm_elementwise(
            TWO, "=r,r,r,f,f", [on + at * 2, like], dtype=tl.int16, is_pure=False, pack=2
        ).to(TYPE, bitcast=True)
    return found


@triton.jit
def read(t, h, first, site, F: tl.constexpr):
    """The rows of a table that a tile reads, in one block, which is there twice, or in two.

    All that a tile reads is asked for at its beginning, as it comes after some time, all at once.
    """
    low = table(t, h, first, site, F, ROWS)
    if F.M + F.N > ROWS:
        high = table(t, h, first + ROWS, site, F, ROWS)
    else:
        high = low
    return low, high


@triton.jit
def biases(bias, h, first, site, F: tl.constexpr):
    """The bias of a block's distances (ROWS,), in units of 1; beyond what a tile reads, 0."""
    c, row = tl.arange(0, ROWS), first - site.low + site.pad
    at = tl.multiple_of(row + (row & 3) * (bias.n - 1), 4)  # as in scores.near_bias
    here = bias.at + tl.cast(h, tl.int64) * bias.h + at
    if F.M + F.N == ROWS or F.M + F.N == 2 * ROWS:
        found = tl.load(here + c)
    else:
        found = tl.load(here + c, mask=c < F.M + F.N, other=0.0)
    return found * (1 / LOG2E)


@triton.jit
def near_rows(tables, h, first, site, F: tl.constexpr):
    """What a near tile reads of the query's table, the key's and the bias, if it has a shelf."""
    query, key, bias = (0, 0), (0, 0), (0, 0)
    if F.shelf and F.query:
        query = read(tables[1], h, first, site, F)
    if F.shelf and F.key:
        key = read(tables[2], h, first, site, F)
    if F.shelf and F.bias:
        low = biases(tables[0], h, first, site, F)
        bias = low, low
        if F.M + F.N > ROWS:
            bias = low, biases(tables[0], h, first + ROWS, site, F)
    return query, key, bias


@triton.jit
def shelved(given, on, like, F: tl.constexpr, MINE: tl.constexpr, TURNED: tl.constexpr):
    """What x bring to a tile by a table, and by the bias if there is no other table.

    given: x, its blocks of the table, and of the bias; like: the tile's scores, as which what is
    found lies. MINE: x are the tile's rows; else its columns.
    """
    x, some, bias = given
    KEY: tl.constexpr = MINE == TURNED
    X: tl.constexpr = F.N if KEY else F.M
    BLOCKS: tl.constexpr = (F.M + F.N + ROWS - 1) // ROWS
    BIAS: tl.constexpr = F.bias and not (KEY and F.query)
    WIDE: tl.constexpr = (BLOCKS * ROWS if MINE else X) + PAD
    tl.static_assert(BLOCKS <= 2 and WIDE * (X if MINE else BLOCKS * ROWS) <= NUMBERS)
    r, c = tl.arange(0, X), tl.arange(0, ROWS)
    ALONE: tl.constexpr = MINE and X == 64
    wait(ALONE)
    for i in tl.static_range(BLOCKS):
        by = dot(x, tl.trans(some[i])) if MINE else dot(some[i], tl.trans(x))
        if BIAS:
            by += bias[i][None, :] if MINE else bias[i][:, None]
        if MINE:
            lay(on, r[:, None] * WIDE + (c + i * ROWS)[None, :], by)
        else:
            lay(on, (c + i * ROWS)[:, None] * WIDE + r[None, :], by)
    wait(ALONE)
    m, n = tl.arange(0, F.M), tl.arange(0, F.N)
    mine, other = (n, m) if TURNED else (m, n)
    away = (n[:, None] - m[None, :] if TURNED else n[None, :] - m[:, None]) + (F.M - 1)
    return take(on, away + mine[:, None] * WIDE if MINE else away * WIDE + other[None, :], like)


@triton.jit
def cleared(scratch):
    """A shelf for gradients, all 0."""
    on = shelf(scratch, 1)
    r, none = tl.arange(0, 64)[:, None], tl.full((64, 64), 0.0, tl.float32)
    for i in tl.static_range(0, NUMBERS, 4096):
        at = i + r * 64 + tl.arange(0, 64)[None, :]
        lay_each(on, tl.minimum(at, NUMBERS - 1), none, tl.float16)
    tl.debug_barrier()
    return on


@triton.jit
def slid(
    ds, on, F: tl.constexpr, KEY: tl.constexpr, TURNED: tl.constexpr, TYPE: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Gradients of a square tile's scores by table row, for each query or key: (X, SIZE), twice.

    What no score of the tile reads is 0, as it is on the shelf from the beginning. Where both use
    it, each leaves a number in a row that the other must not read.
    """
    tl.static_assert(F.M == F.N)
    X: tl.constexpr = F.M
    BLOCKS: tl.constexpr = (2 * X + SIZE - 1) // SIZE
    WIDE: tl.constexpr = BLOCKS * SIZE + ODD
    SLANT: tl.constexpr = WIDE - 1 if KEY else WIDE + 1  # from a row to the next, by table row
    BEGIN: tl.constexpr = X if KEY else 0
    ALONE: tl.constexpr = KEY == TURNED and X == 64
    tl.static_assert(BLOCKS <= 2 and (X - 1) * SLANT + BEGIN + BLOCKS * SIZE <= NUMBERS)
    a, b, c = tl.arange(0, X)[:, None], tl.arange(0, X)[None, :], tl.arange(0, SIZE)[None, :]
    m, n = (b, a) if TURNED else (a, b)
    wait(ALONE)
    lay_each(on, n * WIDE + (2 * X - 1) - m if KEY else m * WIDE + (X - 1) + n, ds, TYPE)
    wait(ALONE)
    at = a * SLANT + BEGIN + c
    like = ds if X == SIZE else tl.full((X, SIZE), 0.0, tl.float32)
    low, high = take_two(on, at, like, TYPE), tl.full((X, SIZE), 0.0, TYPE)
    if BLOCKS == 2:
        high = take_two(on, at + SIZE, like, TYPE)
    if F.query and F.key:
        stale = a - 1 if KEY else 2 * X - 1 - a
        low, high = tl.where(c == stale, 0.0, low), tl.where(c + SIZE == stale, 0.0, high)
    return low.to(TYPE), high.to(TYPE)
