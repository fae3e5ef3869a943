"""Shelves: shared memory of a program's own, where a tile is laid by distance and taken by key.

Products of a table's rows with queries, or keys, come out by distance, and scores want them by key:
each query begins a row further back than the one before. Gradients of scores go the other way.
Gathers go through shared memory twice and shuffle in between. Here numbers are laid down in 16 bits
at one place and taken up from another, an instruction each, as the compiler knows all places but
the thread's own; and those that a warp takes lie in banks of their own.

Places count numbers of 16 bits. Where Triton's interpreter runs, shelves are memory that the
launcher gives. Tiles have as many queries as keys, X, and read two blocks of X rows of a table,
which lie one above the other on a shelf, a row's products side by side. The rows of a tile are of
its own side, the columns of the other one. Of the two blocks that its own side reads, the next tile
reads one again. Each number of that side is for one score alone, so that the score's gradient can
take its place, and a block that no later tile reads holds gradients by distance.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import INTERPRETED, dot

NUMBERS = tl.constexpr(9216)  # of a shelf
PAD = tl.constexpr(8)  # numbers between rows
MOST = tl.constexpr(65504.0)  # the largest number of float16
ROOM = f"{{ .shared .align 1024 .b8 shelf[{2 * NUMBERS.value}]; mov.u32 $0, shelf; }}"
TWO_BLOCKS, THREE_BLOCKS = tl.constexpr(ROOM), tl.constexpr(ROOM.replace("18432", "27648"))
TWO_LAID = tl.constexpr(
    "{ .reg .b32 two; cvt.rn.satfinite.f16x2.f32 two, $5, $4; st.shared.b32 [$2], two;"
    " mov.b32 $0, 0; mov.b32 $1, 0; }"
)
# Four squares of 8 by 8 numbers, for a warp; a thread has two numbers of each.
EIGHT_LAID = tl.constexpr(
    "{ .reg .b32 a, b, c, d; cvt.rn.satfinite.f16x2.f32 a, $11, $10;"
    " cvt.rn.satfinite.f16x2.f32 b, $13, $12; cvt.rn.satfinite.f16x2.f32 c, $15, $14;"
    " cvt.rn.satfinite.f16x2.f32 d, $17, $16;"
    " stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [$2], {a, b, c, d};"
    " mov.b32 $0, 0; mov.b32 $1, 0; }"
)
EACH = tl.constexpr(  # of two numbers of 16 bits; they may begin at an odd place
    "{ .reg .b16 a, b; mov.b32 {a, b}, $4; st.shared.b16 [$2], a; st.shared.b16 [$3], b;"
    " mov.b32 $0, 0; mov.b32 $1, 0; }"
)
ONE = tl.constexpr("ld.shared.b16 $0, [$1];")  # what comes last says how threads share the tile
TWO = tl.constexpr("ld.shared.b32 $0, [$1];")
EIGHT_TURNED = tl.constexpr(  # four such squares
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [$4];"
)
EIGHT = "{ .reg .b32 a, b, c, d; ld.shared.v4.b32 {a, b, c, d}, [$1FROM];"
EIGHT += " st.shared.v4.b32 [$1TO], {a, b, c, d}; mov.b32 $0, 0; }"
DOWN = tl.constexpr(EIGHT.replace("FROM", "+9216").replace("TO", ""))  # 64 rows, in bytes
UP = tl.constexpr(EIGHT.replace("FROM", "").replace("TO", "+9216"))
WAIT = tl.constexpr("bar.warp.sync 0xffffffff; mov.b32 $0, 0;")
WAIT_ALL = tl.constexpr("bar.sync 0; mov.b32 $0, 0;")


@triton.jit
def shelf(scratch, NUMBER: tl.constexpr, ROOM: tl.constexpr = TWO_BLOCKS):
    """The address of a new shelf."""
    if INTERPRETED:
        found = scratch + NUMBER * NUMBERS
    else:
        found = tl.inline_asm_elementwise(ROOM, "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    return found


@triton.jit
def lapped(scratch, X: tl.constexpr):
    """Two shelves in three blocks: of a program's own side, and below it of the other one.

    The lower block of the one is the upper block of the other, which is laid when a tile has taken
    all that lay there.
    """
    on = shelf(scratch, 0, THREE_BLOCKS)
    return on + X * (X + PAD) * (1 if INTERPRETED else 2), on


@triton.jit
def wait(ALONE: tl.constexpr):
    """Until what is laid can be taken, or laid over: by a warp for itself, or by all.

    Around a barrier of Triton's own, loads would not be asked for ahead.
    """
    ASM: tl.constexpr = WAIT if ALONE else WAIT_ALL
    if not INTERPRETED:
        tl.inline_asm_elementwise(ASM, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def places(a, b, A: tl.constexpr, B: tl.constexpr, FIRST: tl.constexpr):
    """Where numbers lie, first + a A + b B, as a sum: of the thread's own, and of constants.

    A thread has rows that differ by 8 and columns that differ by 1 and by 8, as products lie. So it
    holds one address, not all: compilers don't find that out, who put indices together by bits.
    """
    own = (a & -9) * A + (b & 6) * B + FIRST
    return own, (a & 8) * A + (b & -7) * B


@triton.jit
def reached(on, at):
    """The addresses of places, as sums."""
    own, more = at
    if INTERPRETED:
        found = on + (own + more)
    else:
        found = (on + own * 2) + more * 2
    return found


@triton.jit
def squares(on, X: tl.constexpr, SLOT: tl.constexpr, COUNT: tl.constexpr):
    """Where squares of 8 by 8 numbers of blocks begin, of a tile with a query or key in a row.

    As products lie, with 16 rows of 64 a warp: of those and 16 columns a warp has four squares, and
    each thread tells where one row of a square, which is a row of the table, begins.
    """
    a, b = tl.arange(0, X)[:, None], tl.arange(0, COUNT * X)[None, :]
    FIRST: tl.constexpr = SLOT * X * (X + PAD)
    if INTERPRETED:
        found = reached(on, places(a, b, 1, X + PAD, FIRST))
    else:
        tl.static_assert(X == 64)
        row = (a & 4) * 2 + (a & 1) * 4 + (b & 6) // 2  # of a square's sixteen, by the thread
        own = row * (X + PAD) + (a & -16) + (a & 2) * 4 + FIRST
        found = reached(on, (own, (b & -16) * (X + PAD) + (a & 0)))
    return found


@triton.jit
def rounded(value):
    """Numbers of float32 as they are laid: float16's largest in place of larger ones."""
    return tl.minimum(tl.maximum(value, -MOST), MOST).to(tl.float16).to(tl.float32)


@triton.jit
def lay(on, value, X: tl.constexpr, SLOT: tl.constexpr):
    """Put a block down, a row of the table in a row, rounded from float32 to float16."""
    at = reached(on, straight(X, SLOT))
    if INTERPRETED:
        tl.store(at, rounded(value))
    else:
        tl.inline_asm_elementwise(
            TWO_LAID, "=r,=r,r,r,f,f", [at, value], dtype=tl.int32, is_pure=False, pack=2
        )


@triton.jit
def lay_turned(on, value, X: tl.constexpr, SLOT: tl.constexpr, COUNT: tl.constexpr = 1):
    """The same of so many blocks, one behind the other, a query or key in a row of the tile."""
    at = squares(on, X, SLOT, COUNT)
    if INTERPRETED:
        tl.store(at, rounded(value))
    else:
        tl.inline_asm_elementwise(
            EIGHT_LAID,
            "=r,=r,r,r,r,r,r,r,r,r,f,f,f,f,f,f,f,f",
            [at, value],
            dtype=tl.int8,
            is_pure=False,
            pack=8,
        )


@triton.jit
def lay_each(on, at, value):
    """Put a tile of 16 bits down at its places."""
    if INTERPRETED:
        tl.store(reached(on, at), value.to(tl.float32))
    else:
        tl.inline_asm_elementwise(
            EACH, "=r,=r,r,r,r", [reached(on, at), value], dtype=tl.int32, is_pure=False, pack=2
        )


@triton.jit
def take(on, at, like):
    """What lies at places, in float32, in a tile that lies as `like` does."""
    if INTERPRETED:
        found = tl.load(reached(on, at))
    else:
        found = tl.inline_asm_elementwise(
            ONE, "=h,r,f", [reached(on, at), like], dtype=tl.float16, is_pure=False, pack=1
        )
    return found.to(tl.float32)


@triton.jit
def take_two(on, at, like):
    """The same for numbers of like's 16 bits, two at an even place at once."""
    if INTERPRETED:
        found = tl.load(reached(on, at)).to(like.dtype)
    else:
        found = tl.inline_asm_elementwise(
            TWO, "=r,r,r,r", [reached(on, at), like], dtype=like.dtype, is_pure=False, pack=2
        )
    return found


@triton.jit
def straight(X: tl.constexpr, SLOT: tl.constexpr):
    """Where a block (X, X) of products lies, by row of the table: the lower one in slot 0."""
    a, b = tl.arange(0, X)[:, None], tl.arange(0, X)[None, :]
    return places(a, b, X + PAD, 1, SLOT * X * (X + PAD))


@triton.jit
def take_turned(on, like, X: tl.constexpr, SLOT: tl.constexpr):
    """A block as it was laid, a query or key in a row, for a tile that lies as `like` does."""
    at = squares(on, X, SLOT, 1)
    if INTERPRETED:
        found = tl.load(at).to(like.dtype)
    else:
        found = tl.inline_asm_elementwise(
            EIGHT_TURNED,
            "=r,=r,=r,=r,r,r,r,r,r,r,r,r,r,r,r,r",
            [at, like],
            dtype=like.dtype,
            is_pure=False,
            pack=8,
        )
    return found


@triton.jit
def askew(X: tl.constexpr, TURNED: tl.constexpr, OWN: tl.constexpr):
    """Where what a tile's scores take lies: of its own side, its rows, or of the other one.

    Turned tiles have keys by queries.
    """
    a, b = tl.arange(0, X)[:, None], tl.arange(0, X)[None, :]
    WIDE: tl.constexpr = -(X + PAD) if TURNED else X + PAD  # to a later column
    LAST: tl.constexpr = (X - 1) * (X + PAD)
    if OWN:
        found = places(a, b, 1 - WIDE, WIDE, LAST)
    else:
        found = places(a, b, -WIDE, WIDE + 1, LAST)
    return found


@triton.jit
def move(on, X: tl.constexpr, TURNED: tl.constexpr):
    """The block that the next tile reads again changes its slot, 8 numbers of a row at a time.

    Later keys are further on: the upper block becomes the lower one. Later queries, in tiles that
    are turned, are further back. Each of four warps moves what it lays: 16 columns.
    """
    if INTERPRETED:
        block = tl.load(reached(on, straight(X, 0 if TURNED else 1)))
        tl.store(reached(on, straight(X, 1 if TURNED else 0)), block)
    else:
        tl.static_assert(X == 64)
        i = tl.arange(0, X * X // 8)
        row = i // 128 * 16 + i % 32 // 16 * 8 + i % 8
        at = on + row * (2 * (X + PAD)) + i // 32 % 4 * 32 + i // 8 % 2 * 16
        ASM: tl.constexpr = UP if TURNED else DOWN
        tl.inline_asm_elementwise(ASM, "=r,r", [at], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def begin(on, by, X: tl.constexpr, TURNED: tl.constexpr, CUT: tl.constexpr):
    """Lay the first block of all, where move finds it; cut: 0 where no score takes a number."""
    if CUT:
        a, b = tl.arange(0, X)[:, None], tl.arange(0, X)[None, :]
        by = tl.where(b < a if TURNED else a + b >= X - 1, by, 0.0)
    wait(False)
    lay_turned(on, by, X, 0 if TURNED else 1)


@triton.jit
def handed(on, by, like, X: tl.constexpr, TURNED: tl.constexpr, ALONE: tl.constexpr):
    """What a tile's own side brings to it; by: products with it of the block that is new.

    A warp takes what it has laid itself; alone: nobody else reads that either, as gradients do.
    """
    wait(ALONE)
    move(on, X, TURNED)
    wait(True)
    lay_turned(on, by, X, 0 if TURNED else 1)
    wait(True)
    return take(on, askew(X, TURNED, True), like)


@triton.jit
def swapped(on, steep, X: tl.constexpr, TURNED: tl.constexpr):
    """Lay the gradients of a tile's scores; those of the block that is now complete.

    By query or key, and by row of the table: (X, X) each.
    """
    lay_each(on, askew(X, TURNED, True), steep)
    wait(False)
    SLOT: tl.constexpr = 1 if TURNED else 0
    return take_turned(on, steep, X, SLOT), take_two(on, straight(X, SLOT), steep)


@triton.jit
def left_over(on, x, X: tl.constexpr, TURNED: tl.constexpr):
    """As swapped, of the block that no tile takes over; x: what a tile's own side is, (X, BD)."""
    a, b = tl.arange(0, X)[:, None], tl.arange(0, X)[None, :]
    like = dot(x, tl.trans(x)).to(x.dtype)  # lies as products do, and so what is taken
    wait(False)
    SLOT: tl.constexpr = 0 if TURNED else 1
    mine, row = take_turned(on, like, X, SLOT), take_two(on, straight(X, SLOT), like)
    mine = tl.where(b >= a if TURNED else a + b < X - 1, mine, 0.0)
    row = tl.where(a >= b if TURNED else a + b < X - 1, row, 0.0)
    return mine.to(x.dtype), row.to(x.dtype)


@triton.jit
def across(on, like, X: tl.constexpr, TURNED: tl.constexpr):
    """What the other side brings to a tile, when both blocks are laid."""
    wait(False)
    return take(on, askew(X, TURNED, False), like)
