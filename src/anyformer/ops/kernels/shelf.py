"""Shelves: shared memory of a program's own, where a tile is laid by distance and taken by key.

Products of queries, or keys, with rows of a table come out by distance, and scores want them by
key: each row begins a place later than the one before. Gradients of scores go the other way.
Gathers go through shared memory twice and shuffle in between. Here numbers are laid down in 16 bits
at one place and taken up from another, an instruction each, as the compiler knows all places but
the thread's own.

Places count numbers of 16 bits. Where Triton's interpreter runs, shelves are memory that the
launcher gives. Tiles have as many queries as keys, N, and read 2 N rows of a table.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import INTERPRETED

NUMBERS, LONG = tl.constexpr(9216), tl.constexpr(12800)  # of a shelf for two blocks, and for three
PAD = tl.constexpr(8)  # numbers between rows: those that a warp takes lie in banks of their own
ODD = tl.constexpr(9)  # the same between rows that begin at odd and even places in turn
MOST = tl.constexpr(65504.0)  # the largest number of float16
ROOM = "{ .shared .align 1024 .b8 shelf[BYTES]; mov.u32 $0, shelf; }"
SHORT_ROOM = tl.constexpr(ROOM.replace("BYTES", str(2 * NUMBERS.value)))
LONG_ROOM = tl.constexpr(ROOM.replace("BYTES", str(2 * LONG.value)))
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
NONE = tl.constexpr("{ .reg .b16 z; mov.b16 z, 0; st.shared.b16 [$1], z; mov.b32 $0, 0; }")
WAIT = tl.constexpr("bar.warp.sync 0xffffffff; mov.b32 $0, 0;")
WAIT_ALL = tl.constexpr("bar.sync 0; mov.b32 $0, 0;")


@triton.jit
def shelf(scratch, NUMBER: tl.constexpr, SIZE: tl.constexpr):
    """The address of a new shelf, long or not."""
    if INTERPRETED:
        found = scratch + NUMBER * LONG
    else:
        ASM: tl.constexpr = LONG_ROOM if SIZE == LONG else SHORT_ROOM
        found = tl.inline_asm_elementwise(ASM, "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    return found


@triton.jit
def wait(ALONE: tl.constexpr):
    """Until what is laid can be taken, or laid over: by a warp for itself, or by all.

    Around a barrier of Triton's own, loads would not be asked for ahead.
    """
    ASM: tl.constexpr = WAIT if ALONE else WAIT_ALL
    if not INTERPRETED:
        tl.inline_asm_elementwise(ASM, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


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
def clear(on, at):
    """Put zeros down at places."""
    if INTERPRETED:
        tl.store(on + at, 0.0)
    else:
        tl.inline_asm_elementwise(
            NONE, "=r,r", [on + at * 2], dtype=tl.int32, is_pure=False, pack=1
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
def lay_block(on, by, SLOT, F: tl.constexpr, WIDE: tl.constexpr):
    """Products of queries with a block of rows (M, N), one query's side by side."""
    at = tl.arange(0, F.M)[:, None] * WIDE + tl.arange(0, F.N)[None, :]
    lay(on, at + SLOT * F.N, by)


@triton.jit
def by_query(on, like, SLOT, F: tl.constexpr, WIDE: tl.constexpr):
    """What queries bring to a tile, of two blocks that lie from a slot on."""
    m, n = tl.arange(0, F.M)[:, None], tl.arange(0, F.N)[None, :]
    return take(on, m * (WIDE - 1) + n + (F.M - 1) + SLOT * F.N, like)


@triton.jit
def by_key(on, low, high, like, F: tl.constexpr):
    """What keys bring to a tile, by products of two blocks of rows with them, (N, N) each."""
    WIDE: tl.constexpr = F.N + PAD
    r, n, m = tl.arange(0, F.N)[:, None], tl.arange(0, F.N)[None, :], tl.arange(0, F.M)[:, None]
    wait(False)
    lay(on, r * WIDE + n, low)
    lay(on, (r + F.N) * WIDE + n, high)
    wait(False)
    return take(on, (n - m + (F.M - 1)) * WIDE + n, like)


@triton.jit
def cleared(scratch):
    """A shelf for gradients, all 0."""
    on = shelf(scratch, 1, NUMBERS)
    r, none = tl.arange(0, 64)[:, None], tl.full((64, 64), 0.0, tl.float32)
    for i in tl.static_range(0, NUMBERS, 4096):
        at = i + r * 64 + tl.arange(0, 64)[None, :]
        lay_each(on, tl.minimum(at, NUMBERS - 1), none, tl.float16)
    tl.debug_barrier()
    return on


@triton.jit
def slid(ds, on, F: tl.constexpr, KEY: tl.constexpr, TYPE: tl.constexpr):
    """Gradients of a tile's scores by row of a table, for each query or key: (N, N), twice.

    What no score of the tile reads is 0, as it is on the shelf from the beginning. Where both use
    it, each leaves a number in every row that the other must not read.
    """
    tl.static_assert(F.M == F.N)
    X: tl.constexpr = F.M
    WIDE: tl.constexpr = 2 * X + ODD
    SLANT: tl.constexpr = WIDE - 1 if KEY else WIDE + 1  # from a row to the next, by table row
    BEGIN: tl.constexpr = X if KEY else 0
    BOTH: tl.constexpr = F.key and (F.query or F.bias)
    ALONE: tl.constexpr = X == 64 and not F.key
    tl.static_assert((X - 1) * SLANT + BEGIN + 2 * X <= NUMBERS)
    m, n = tl.arange(0, X)[:, None], tl.arange(0, X)[None, :]
    wait(ALONE)
    lay_each(on, n * WIDE + (2 * X - 1) - m if KEY else m * WIDE + (X - 1) + n, ds, TYPE)
    if BOTH:
        clear(on, tl.arange(0, X) * WIDE + ((X - 1) if KEY else (2 * X - 1)))
    wait(ALONE)
    at = m * SLANT + BEGIN + n
    low, high = take_two(on, at, ds, TYPE), take_two(on, at + X, ds, TYPE)
    return low, high
