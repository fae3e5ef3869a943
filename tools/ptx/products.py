"""Instructions of tensor cores, and those that bring numbers to where products want them.

M, N, K: rows, columns and depth of a product; a group of four warps makes one of 64 rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tools.ptx.arithmetic import wide
from tools.ptx.faults import KernelError
from tools.ptx.machine import TYPES, WARP, Array, Machine, Mask, Step, put, registers, step
from tools.ptx.moves import rows, whole
from tools.ptx.read import Line, Many, Operand
from tools.ptx.shared import CELL

GROUP = 128
Side = Callable[[slice], tuple[Array, Array]]  # of a product, by threads: numbers, cells it reads
SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}  # bytes of a row whose parts change places


def _numbers(bytes: Array, kind: str) -> Array:
    """Bytes (..., size) as float32 (...)."""
    size = np.dtype(TYPES[kind]).itemsize if kind != "tf32" else 4
    flat = np.ascontiguousarray(bytes).reshape(-1, size)
    raw = flat.view("f4" if kind == "tf32" else TYPES[kind])[:, 0]
    return wide(raw, kind).reshape(bytes.shape[:-1]).astype(np.float32)


def _pairs(given: list[Array], kind: str) -> Array:
    """Of each thread, the numbers that its registers hold: (N, numbers)."""
    parts = [np.ascontiguousarray(x)[:, None].view(np.uint16) for x in given]
    raw = np.concatenate(parts, 1)
    return wide(raw.view(np.uint16 if kind == "bf16" else np.float16), kind).astype(np.float32)


def _lanes(threads: int) -> tuple[Array, Array]:
    lane = np.arange(threads) % WARP
    return lane // 4, lane % 4


def fragment(depth: int) -> tuple[Array, Array]:
    """Rows and columns (GROUP, numbers) of the left side of a product of 16 rows a warp."""
    row, column = _lanes(GROUP)
    i = np.arange(depth // 2)
    pair, j = i % 2, i // 2
    rows_ = row[:, None] + 8 * (j % 2) + 16 * (np.arange(GROUP) // WARP)[:, None]
    return rows_, column[:, None] * 2 + pair + 8 * (j // 2)


def result(columns: int) -> tuple[Array, Array]:
    """Rows and columns (GROUP, numbers) of a product of 64 rows."""
    row, column = _lanes(GROUP)
    i = np.arange(columns // 2)
    rows_ = row[:, None] + 8 * (i // 2 % 2) + 16 * (np.arange(GROUP) // WARP)[:, None]
    return rows_, column[:, None] * 2 + i % 2 + 8 * (i // 4)


# ------------------------------------------------- a product of a group of warps


def described(bits: int, wide_side: int, depth: int, turned: bool, size: int) -> Array:
    """The first byte of each number of a tile in shared memory: (wide_side, depth).

    Turned: numbers of the wide side lie next to one another, not those of the depth.
    """
    start, lead, stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    row_bytes = SWIZZLES[bits >> 62 & 3]
    i, k = np.arange(wide_side)[:, None], np.arange(depth)[None, :]
    if turned:
        each = (row_bytes or 16) // size  # numbers of the wide side in a row
        inner, outer = i % each, i // each
        if row_bytes:
            at = inner * size + outer * lead + k % 8 * row_bytes + k // 8 * stride
        else:
            at = inner * size + outer * stride + k % 8 * 16 + k // 8 * lead
    elif row_bytes:
        at = i % 8 * row_bytes + i // 8 * stride + k * size
    else:
        each = 16 // size
        at = i % 8 * 16 + i // 8 * stride + k % each * size + k // each * lead
    at = at + start
    parts = max(row_bytes // 16, 1)  # of 16 bytes, which change places by the row
    return at ^ ((at >> 7) & (parts - 1)) << 4


def _held(given: list[Array], depth: int, kind: str) -> Side:
    where = fragment(depth)

    def side(span: slice) -> tuple[Array, Array]:
        numbers = np.empty((64, depth), np.float32)
        numbers[where] = _pairs([x[span] for x in given], kind)
        return numbers, np.zeros(0, np.int64)

    return side


def _lying(m: Machine, descriptor: Operand, size: tuple[int, int], turned: bool, kind: str) -> Side:
    at = m.get(descriptor, "u64")

    def side(span: slice) -> tuple[Array, Array]:
        bits = at[span]
        if (bits != bits[0]).any():
            raise KernelError("threads of a group name different tiles")
        first = described(int(bits[0]), *size, turned, 2)
        if first.min() < m.shared.first or first.max() + 2 > m.shared.end:
            raise KernelError("shared memory: a product reads beyond it")
        numbers = _numbers(m.shared.bytes[first[..., None] + np.arange(2)], kind)
        return numbers, first.ravel() // CELL

    return side


@step("wgmma")
def product(m: Machine, line: Line) -> Step:
    """Of four warps, from shared memory or registers, under way until it is waited for."""
    if line.words[1] != "mma_async":
        return _around(m, line)
    shape = next(re.fullmatch(r"m64n(\d+)k(\d+)", x) for x in line.words if x.startswith("m64"))
    columns, depth = int(shape[1]), int(shape[2])  # type: ignore[index]
    kind = line.words[-1]
    if kind not in ("f16", "bf16") or line.words[-3] != "f32":
        raise ValueError(f"the emulator has no product of this type: {line.name}")
    outs, named = rows(m, line.operands[0]), set(registers(line.operands[:1]))
    left, right, keeps, *how = line.operands[1:]
    keep, (sign, other, *turns) = m.get(keeps, "pred"), (_constant(m, x) for x in how)
    if isinstance(left, Many):
        first = _held(rows(m, left), depth, kind)
    else:
        first = _lying(m, left, (64, depth), bool(turns[0]), kind)
    second, at = _lying(m, right, (columns, depth), bool(turns[-1]), kind), result(columns)

    def run(mask: Mask) -> None:
        for group in np.nonzero(whole(mask, m.size.threads, GROUP))[0]:
            span = slice(GROUP * group, GROUP * group + GROUP)
            (a, own), (b, more) = first(span), second(span)
            used = np.unique(np.concatenate([own, more]))
            m.shared.lent(used)
            m.open.append((named, used))
            found = (a * sign) @ (b * other).T
            for i, out in enumerate(outs):
                sums = out.view(np.float32)[span]
                sums[:] = np.where(keep[span], sums, 0) + found[at[0][:, i], at[1][:, i]]

    return run


def _constant(m: Machine, x: Operand) -> int:
    return int(m.get(x, "s32")[0])


def _around(m: Machine, line: Line) -> Step:
    """Before and behind products: fences, ends of groups, and waiting for them."""
    if line.words[1] == "fence":
        return lambda _: None
    if line.words[1] == "commit_group":

        def close(_: Mask) -> None:
            named = set[str]().union(*(x for x, _ in m.open))
            m.pending.append((named, [cells for _, cells in m.open]))
            m.open = []

        return close
    most = _constant(m, line.operands[0])

    def wait(_: Mask) -> None:
        while len(m.pending) > most:
            for cells in m.pending.pop(0)[1]:
                m.shared.returned(cells)

    return wait


# --------------------------------------------------------- a product of a warp


@step("mma")
def small_product(m: Machine, line: Line) -> Step:
    """Of a warp, from registers."""
    shape = next(re.fullmatch(r"m16n8k(\d+)", x) for x in line.words if x.startswith("m16"))
    kind, depth = line.words[-2], int(shape[1])  # type: ignore[index]
    outs, left, right, start = (rows(m, x) for x in line.operands)
    per = 1 if kind == "tf32" else 2
    row, column = (x[:, None] for x in _lanes(m.size.threads))
    warp = np.arange(m.size.threads)[:, None] // WARP
    i = np.arange(len(left) * per)
    j, pair = i // per, i % per
    step_ = 4 * per
    a_at = warp, row + 8 * (j % 2), column * per + pair + step_ * (j // 2)
    i = np.arange(len(right) * per)
    b_at = warp, column * per + i % per + step_ * (i // per), row + 0 * i
    i = np.arange(4)
    c_at = warp, row + 8 * (i // 2), column * 2 + i % 2

    def numbers(held: list[Array]) -> Array:
        if per == 2:
            return _pairs(held, kind)
        return np.stack([x.view(np.float32) for x in held], 1)

    def run(mask: Mask) -> None:
        warps = len(whole(mask, m.size.threads))
        a, b = np.zeros((warps, 16, depth), np.float32), np.zeros((warps, depth, 8), np.float32)
        a[a_at], b[b_at] = numbers(left), numbers(right)
        found = (a @ b)[c_at]
        sums = [found[:, k] + start[k].view(np.float32) for k in range(4)]
        for out, value in zip(outs, sums, strict=True):
            put(out.view(np.float32), value, mask)

    return run


# ------------------------------------------------------ squares of 8 by 8 numbers


def _squares(m: Machine, line: Line) -> tuple[int, bool]:
    count = int(next(x for x in line.words if re.fullmatch(r"x\d", x))[1:])
    return count, "trans" in line.words


def _rows_of(at: Array, square: int) -> Array:
    """Where the rows of a square begin, as its eight threads say: (warps, 8)."""
    return at.reshape(-1, WARP)[:, 8 * square : 8 * square + 8]


@step("ldmatrix")
def load_squares(m: Machine, line: Line) -> Step:
    """A warp reads squares of 16-bit numbers, eight rows of eight each."""
    count, turned = _squares(m, line)
    outs, at = rows(m, line.operands[0]), m.address(line.operands[1])
    row, column = (x[:WARP] for x in _lanes(WARP))

    def run(mask: Mask) -> None:
        start, warps = at(), whole(mask, m.size.threads)
        for i, out in enumerate(outs[:count]):
            places = _rows_of(start, i)
            read = np.zeros(m.size.threads, bool).reshape(-1, WARP)
            read[warps, :8] = True
            spread = np.zeros((len(places), WARP), np.int64)
            spread[:, :8] = places
            _, data = m.shared.load(spread.ravel(), 16, read.ravel())
            square = data.reshape(-1, 8, 16).view(np.uint16)
            square = square.transpose(0, 2, 1) if turned else square
            pair = np.stack([square[:, row, 2 * column], square[:, row, 2 * column + 1]], -1)
            out.reshape(-1, WARP)[warps] = np.ascontiguousarray(pair).view(np.uint32)[..., 0]

    return run


@step("stmatrix")
def store_squares(m: Machine, line: Line) -> Step:
    """A warp writes squares of 16-bit numbers, eight rows of eight each."""
    count, turned = _squares(m, line)
    at, given = m.address(line.operands[0]), rows(m, line.operands[1])
    row, column = (x[:WARP] for x in _lanes(WARP))

    def run(mask: Mask) -> None:
        start, warps = at(), np.nonzero(whole(mask, m.size.threads))[0]
        for i, x in enumerate(given[:count]):
            places = _rows_of(start, i)
            pair = np.ascontiguousarray(x).view(np.uint16).reshape(len(places), WARP, 2)
            square = np.zeros((len(places), 8, 8), np.uint16)
            square[:, row, 2 * column], square[:, row, 2 * column + 1] = pair[..., 0], pair[..., 1]
            square = square.transpose(0, 2, 1) if turned else square
            data = np.ascontiguousarray(square[warps]).view(np.uint8).reshape(-1, 16)
            spread = np.zeros((len(places), WARP), np.int64)
            spread[:, :8] = places
            who = (warps[:, None] * WARP + np.arange(8)).ravel()
            m.shared.store(spread.ravel(), data, who)

    return run


# --------------------------------------------------------------- loads ahead


@step("cp")
def copy(m: Machine, line: Line) -> Step:
    """From tensors to shared memory, under way until it is waited for."""
    if line.words[1] != "async" or "bulk" in line.words:
        raise ValueError(f"the emulator has no such copies: {line.name}")
    if "commit_group" in line.words:
        return lambda _: m.copies.append([])
    if "wait_group" in line.words or "wait_all" in line.words:
        return _arrived(m, _constant(m, line.operands[0]) if line.operands else 0)
    to, start = m.address(line.operands[0]), m.address(line.operands[1])
    size = _constant(m, line.operands[2])
    given = m.get(line.operands[3], "u32") if len(line.operands) > 3 else None

    def run(mask: Mask) -> None:
        who = np.arange(m.size.threads) if mask is True else np.nonzero(mask)[0]
        data, taken = np.zeros((m.size.threads, size), np.uint8), np.zeros(m.size.threads, bool)
        many = np.full(m.size.threads, size) if given is None else given.astype(int)
        if not np.isin(many[who], (0, size)).all():
            raise KernelError("a copy of a part")
        taken[who] = many[who] == size
        if taken.any():
            data[taken] = m.memory.load(start(), size, taken)[1]
        m.copies[-1].append(m.shared.depart(to()[who], data[who], m.shared.warp[who]))

    return run


def _arrived(m: Machine, most: int) -> Any:
    def wait(_: Mask) -> None:
        while len(m.copies) - 1 > most:
            for land in m.copies.pop(0):
                land()

    return wait
