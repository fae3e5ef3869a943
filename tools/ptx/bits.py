"""Instructions that move bits within numbers, join them bit by bit, and count them."""

from __future__ import annotations

import numpy as np

from tools.ptx.arithmetic import BITS, Compute, computed, unsigned
from tools.ptx.machine import RAW, Machine, Mask, Step, put, step
from tools.ptx.read import Line


def _shifted(root: str, kind: str) -> Compute:
    bits = int(kind[1:])
    if root == "shl":
        return lambda a, n: np.where(n < bits, a << np.minimum(n, bits - 1).astype(a.dtype), 0)
    beyond = (lambda a: np.where(a < 0, -1, 0)) if kind[0] == "s" else np.zeros_like
    return lambda a, n: np.where(n < bits, a >> np.minimum(n, bits - 1).astype(a.dtype), beyond(a))


@step("shl", "shr")
def shift(m: Machine, line: Line) -> Step:
    """Bits to the left or the right; beyond the width nothing is left."""
    kind = line.words[-1]
    out, a = m.get(line.operands[0], kind), m.get(line.operands[1], kind)
    by, move = m.get(line.operands[2], "u32"), _shifted(line.words[0], kind)
    return lambda mask: put(out, move(a, by), mask)


@step("shf")
def funnel(m: Machine, line: Line) -> Step:
    """Bits of two registers side by side."""
    out, low, high, by = (m.get(x, "u32") for x in line.operands)
    left, wrap = line.words[1] == "l", line.words[2] == "wrap"

    def run(mask: Mask) -> None:
        n = by % 32 if wrap else np.minimum(by, 32)
        both = low.astype(object) + (high.astype(object) << 32)
        pairs = [(int(x), int(k)) for x, k in zip(both, n, strict=True)]
        found = [x << k >> 32 if left else x >> k for x, k in pairs]
        put(out, np.array([x & 0xFFFFFFFF for x in found], np.uint32), mask)

    return run


@step("not", *BITS)
def bits(m: Machine, line: Line) -> Step:
    """Bit by bit."""
    kind = line.words[-1]
    return computed(m, line, kind, kind, BITS.get(line.words[0], np.invert))


@step("lop3")
def any_of_three(m: Machine, line: Line) -> Step:
    """A function of three bits, by its table."""
    out, a, b, c = (m.get(x, "u32") for x in line.operands[:4])
    table = int(m.get(line.operands[4], "u32")[0])

    def run(mask: Mask) -> None:
        found = np.zeros_like(a)
        for i in range(8):
            if table >> i & 1:
                found |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        put(out, found, mask)

    return run


@step("bfe")
def extract(m: Machine, line: Line) -> Step:
    """A field of bits as a number."""
    kind = line.words[-1]
    out, a = m.get(line.operands[0], kind), m.get(line.operands[1], unsigned(kind))
    at, size = (m.get(x, "u32") for x in line.operands[2:])
    bits = int(kind[1:])

    def run(mask: Mask) -> None:
        first, many = (np.minimum(x & 0xFF, bits).astype(np.uint64) for x in (at, size))
        many = np.minimum(many, bits - first)
        field = (a.astype(np.uint64) >> first) & ((np.uint64(1) << many) - np.uint64(1))
        if kind[0] == "s":
            sign = (field >> np.where(many > 0, many - 1, 0).astype(np.uint64)) & np.uint64(1)
            field = np.where((sign == 1) & (many > 0), field - (np.uint64(1) << many), field)
        put(out, field.astype(RAW[bits]).view(out.dtype), mask)

    return run


@step("popc", "clz", "brev")
def counted(m: Machine, line: Line) -> Step:
    """Of bits: how many are set, how many are ahead of the first, or all turned around."""
    kind = line.words[-1]
    out, a, n = m.get(line.operands[0], "u32"), m.get(line.operands[1], kind), int(kind[1:])
    one = {
        "popc": lambda x: x.bit_count(),
        "clz": lambda x: n - x.bit_length(),
        "brev": lambda x: int(f"{x:0{n}b}"[::-1], 2),
    }[line.words[0]]
    return lambda mask: put(out, np.array([one(int(x)) for x in a]), mask)


@step("prmt")
def permute(m: Machine, line: Line) -> Step:
    """Four of eight bytes."""
    out, a, b, how = (m.get(x, "u32") for x in line.operands)

    def run(mask: Mask) -> None:
        both = np.stack([a, b], 1).view(np.uint8)
        found = np.zeros((len(a), 4), np.uint8)
        for i in range(4):
            pick = how >> np.uint32(4 * i) & np.uint32(0xF)
            byte = both[np.arange(len(a)), pick & 7]
            found[:, i] = np.where(pick & 8, np.where(byte & 0x80, 0xFF, 0), byte)
        put(out, found.view(np.uint32)[:, 0], mask)

    return run


@step("bfi")
def insert(m: Machine, line: Line) -> Step:
    """The lowest bits of one number in place of some of another's."""
    out, *given = (m.get(x, "u32") for x in line.operands)

    def run(mask: Mask) -> None:
        part, whole, first, count = (x.astype(np.uint64) & 0xFFFFFFFF for x in given)
        bits = ((np.uint64(1) << (count & 0xFF)) - np.uint64(1)) << (first & 0xFF)
        put(out, ((whole & ~bits) | (part << first & bits)) & 0xFFFFFFFF, mask)

    return run
