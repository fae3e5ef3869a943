"""Instructions that compute: numbers, bits, comparisons, and changes of type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tools.ptx.machine import RAW, Array, Machine, Mask, Step, put, step
from tools.ptx.read import Line, Many, Operand, Register

ANYWHERE = np.uint64(1 << 62)  # where shared memory begins for addresses of any memory
FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
Compute = Callable[..., Any]


def wide(raw: Array, kind: str) -> Array:
    """Numbers of a float type in float32; bfloat16 comes as its bits."""
    if kind.startswith("bf16"):
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32) if kind.startswith("f16") else raw


def narrow(value: Array, kind: str) -> Array:
    """Back to what a register of that type holds, rounded to even."""
    if not kind.startswith("bf16"):
        return value.astype({"f32": np.float32, "f64": np.float64}.get(kind, np.float16))
    bits = np.ascontiguousarray(value.astype(np.float32)).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(value), np.uint16(0x7FFF), rounded)


def each(kind: str, mask: Mask) -> Mask:
    """Which numbers, where a thread has two in a register."""
    return np.repeat(mask, 2) if kind.endswith("x2") and mask is not True else mask


def computed(m: Machine, line: Line, kind: str, to: str, compute: Compute) -> Step:
    """An instruction whose first operand gets a function of the others."""
    out = m.get(line.operands[0], to)
    given = [m.get(x, kind) for x in line.operands[1:]]
    if kind not in FLOATS or kind in ("f32", "f64"):

        def plain(mask: Mask) -> None:
            put(out, compute(*given), mask)

        return plain

    def rounded(mask: Mask) -> None:
        put(out, narrow(compute(*(wide(x, kind) for x in given)), to), each(kind, mask))

    return rounded


def unsigned(kind: str) -> str:
    """The type in which integers wrap around silently."""
    return kind.replace("s", "u")


def _fused(a: Array, b: Array, c: Array) -> Array:
    return (a.astype(np.float64) * b + c).astype(a.dtype)


def _quotient(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    safe = np.where(b == 0, 1, b)
    found = abs(a.astype(object)) // abs(safe.astype(object))
    signs = np.where((a < 0) != (safe < 0), -1, 1)
    return np.where(b == 0, -1, (found * signs).astype(np.int64))


def _high(a: Array, b: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    return np.array([int(x) * int(y) >> bits for x, y in zip(a, b, strict=True)], np.int64)


TWO: dict[str, Compute] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _quotient,
    "rem": lambda a, b: a - _quotient(a, b).astype(a.dtype) * b,
    "min": lambda a, b: np.fmin(a, b) if a.dtype.kind == "f" else np.minimum(a, b),
    "max": lambda a, b: np.fmax(a, b) if a.dtype.kind == "f" else np.maximum(a, b),
    "neg": np.negative,
    "abs": np.abs,
    "fma": _fused,
    "mad": lambda a, b, c: a * b + c,
    "copysign": lambda a, b: np.copysign(b, a),
}


@step(*TWO)
def arithmetic(m: Machine, line: Line) -> Step:
    """Sums, products, quotients and the like."""
    root, *how, kind = line.words
    compute = TWO[root]
    if "wide" in how:
        to = {"16": "32", "32": "64"}[kind[1:]]
        first = [m.get(x, kind) for x in line.operands[1:3]]
        more = [m.get(x, kind[0] + to) for x in line.operands[3:]]
        out = m.get(line.operands[0], kind[0] + to)
        product = lambda: first[0].astype(out.dtype) * first[1].astype(out.dtype)
        return lambda mask: put(out, sum((x for x in more), product()), mask)
    if "hi" in how:
        compute = _high
    elif kind not in FLOATS and root in ("add", "sub", "mul", "mad"):
        kind = unsigned(kind)
    if "NaN" in how:
        compute = {"min": np.minimum, "max": np.maximum}[root]
    if "relu" in how:
        inner = compute
        compute = lambda *x: np.maximum(inner(*x), 0)
    if "sat" in how and kind in FLOATS:
        whole = compute
        compute = lambda *x: np.clip(whole(*x), 0, 1)
    return computed(m, line, kind, kind, compute)


CURVES: dict[str, Compute] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
}


@step(*CURVES)
def curve(m: Machine, line: Line) -> Step:
    """Functions of one number, as exact as float64 is."""
    kind, exact = line.words[-1], CURVES[line.words[0]]
    return computed(m, line, kind, kind, lambda x: exact(x.astype(np.float64)).astype(np.float32))


BITS: dict[str, Compute] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
COMPARED: dict[str, Compute] = {
    "eq": np.equal,
    "ne": lambda a, b: (a != b) & ~_unordered(a, b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
    "num": lambda a, b: ~_unordered(a, b),
    "nan": lambda a, b: _unordered(a, b),
}


def _unordered(a: Array, b: Array) -> Array:
    return (a != a) | (b != b)


def comparison(name: str) -> Compute:
    """By its name; those that end in u hold where a number is none."""
    if name in COMPARED:
        return COMPARED[name]
    exact = COMPARED[name[:-1]]
    return lambda a, b: exact(a, b) | _unordered(a, b)


@step("setp")
def compare(m: Machine, line: Line) -> Step:
    """Predicates by comparison, which may be joined with another one."""
    _, name, *how, kind = line.words
    where = line.operands[0]
    outs = [m.get(x, "pred") for x in (where.items if isinstance(where, Many) else (where,))]
    a, b = (m.get(x, kind) for x in line.operands[1:3])
    holds = comparison(name)
    join = BITS.get(next((x for x in how if x in BITS), ""))
    other = m.get(line.operands[3], "pred") if join else None

    def run(mask: Mask) -> None:
        found = holds(wide(a, kind), wide(b, kind)) if kind in FLOATS else holds(a, b)
        for out, value in zip(outs, (found, ~found), strict=False):
            put(out, join(value, other) if join else value, mask)

    return run


@step("selp")
def select(m: Machine, line: Line) -> Step:
    """One of two, by a predicate."""
    out, a, b = (m.get(x, line.words[-1]) for x in line.operands[:3])
    by = m.get(line.operands[3], "pred")
    return lambda mask: put(out, np.where(by, a, b), mask)


@step("mov")
def move(m: Machine, line: Line) -> Step:
    """A value as it is, put together from parts, or taken apart."""
    to, given = line.operands
    if isinstance(to, Many):
        whole = _row(m, given)
        part = whole.view(RAW[8 * whole.dtype.itemsize // len(to.items)]).reshape(len(whole), -1)
        outs = [m.row(x.name) if isinstance(x, Register) else None for x in to.items]  # none: _

        def apart(mask: Mask) -> None:
            for out, column in zip(outs, part.copy().T, strict=True):
                if out is not None:
                    put(out, column, mask)

        return apart
    out = m.row(_name(to))
    if isinstance(given, Many):
        rows = [_row(m, x) for x in given.items]
        together = lambda: np.stack(rows, 1).reshape(-1).view(out.dtype)
        return lambda mask: put(out, together(), mask)
    kind = "pred" if out.dtype == np.bool_ else f"u{8 * out.dtype.itemsize}"
    value = m.get(given, kind)
    return lambda mask: put(out, value, mask)


@step("cvta")
def addressed(m: Machine, line: Line) -> Step:
    """An address of one memory as one of any, or back: shared memory lies beyond all tensors."""
    out, a = m.get(line.operands[0], "u64"), m.get(line.operands[1], "u64")
    beyond = ANYWHERE if "shared" in line.words else np.uint64(0)
    if "to" in line.words:
        return lambda mask: put(out, a - beyond, mask)
    return lambda mask: put(out, a + beyond, mask)


def _row(m: Machine, x: Operand) -> Array:
    return m.row(_name(x))


def _name(x: Operand) -> str:
    if not isinstance(x, Register):
        raise ValueError(f"{x} is no register")
    return x.name


ROUNDED: dict[str, Compute] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
LARGEST = {"f16": 65504.0, "f16x2": 65504.0}


@step("cvt")
def convert(m: Machine, line: Line) -> Step:
    """From one type to another."""
    *how, to, kind = line.words[1:]
    out = m.row(_name(line.operands[0]))
    if to.endswith("x2"):
        high, low = (m.get(x, kind) for x in line.operands[1:3])
        most = LARGEST[to] if "satfinite" in how else np.inf

        def both(mask: Mask) -> None:
            pair = np.stack([low, high], 1).reshape(-1)
            value = narrow(np.where(np.isnan(pair), pair, np.clip(pair, -most, most)), to)
            put(out, value.view(np.uint32), mask)

        return both
    source = line.operands[1]
    row = m.row(source.name) if isinstance(source, Register) else m.get(source, kind)
    taken = lambda: row.astype(f"u{int(kind.lstrip('bufs')) // 8}").view(m.get_type(kind))
    whole = next((ROUNDED[x] for x in how if x in ROUNDED), None)

    def run(mask: Mask) -> None:
        put(out, _converted(taken(), kind, to, whole, out.dtype), mask)

    return run


def _converted(x: Array, kind: str, to: str, whole: Compute | None, like: Any) -> Array:
    """The bits of the result, as many as the register has."""
    value = wide(x, kind) if kind in FLOATS else x
    if to in FLOATS:
        value = whole(value) if whole else value
        found = narrow(value.astype(np.float64), to)
        return found.view(f"u{found.dtype.itemsize}").astype(like)
    integer = np.dtype({"s": "i", "u": "u"}[to[0]] + str(int(to[1:]) // 8))
    if kind in FLOATS:
        bounds = np.iinfo(integer)
        value = np.nan_to_num((whole or np.trunc)(value.astype(np.float64)), nan=0.0)
        value = np.clip(value, float(bounds.min), float(bounds.max))
    found = value.astype(integer)
    return found.astype(f"{integer.kind}{like.itemsize}").view(like)
