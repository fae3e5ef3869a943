"""One processor at work on one program: registers, the steps of a kernel, and their order.

All threads take a step together as long as their ways don't part (`flow.py`), so a warp is never
ahead of another one; what would happen if it were is for `shared.py` to say. N: threads of a
program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from tools.ptx.faults import KernelError
from tools.ptx.flow import Flow, Mask
from tools.ptx.memory import Global
from tools.ptx.read import Kernel, Line, Many, Number, Operand, Place, Register, Word
from tools.ptx.shared import Shared

WARP = 32
RAW = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
TYPES: dict[str, Any] = {
    **{f"{sign}{bits}": RAW[bits] for sign in "bu" for bits in (8, 16, 32, 64)},
    **{"s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64},
    **{"f16": np.float16, "f32": np.float32, "f64": np.float64, "f16x2": np.float16},
    **{"pred": np.bool_, "bf16": np.uint16, "bf16x2": np.uint16},
}
Array = np.ndarray[Any, Any]
Step = Callable[[Mask], "int | None"]
Group = tuple[set[str], list[Array]]  # of products under way: registers, and cells they read
Builder = Callable[["Machine", Line], Step]
Taken = tuple["int | None", Mask]  # where a step leads, and whom
BUILDERS: dict[str, Builder] = {}


class Size(NamedTuple):
    """Of a launch: programs in three directions, and threads of each."""

    grid: tuple[int, int, int]
    threads: int


def step(*names: str) -> Callable[[Builder], Builder]:
    """Instructions that begin so are built by this function."""

    def listed(build: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(names, build))
        return build

    return listed


class Machine:
    """Runs the programs of a launch, one after another."""

    def __init__(
        self, kernel: Kernel, size: Size, values: dict[str, bytes], shared: int, memory: Global
    ):
        self.kernel, self.size, self.memory = kernel, size, memory
        self.given = {name: 8 * i for i, name in enumerate(values)}  # where each parameter lies
        slots = b"".join(x.ljust(8, b"\0") for x in values.values())
        self.parameters = np.frombuffer(slots, np.uint8)
        self.shared = Shared(kernel.own, shared, size.threads)
        self.rows: dict[str, Array] = {}
        self.special = self._special()
        self.pending: list[Group] = []
        self.open: list[tuple[set[str], Array]] = []  # those of the group that isn't closed
        self.copies: list[list[Callable[[], None]]] = [[]]
        self.counts: Counter[str] = Counter()
        self.flow = Flow(size.threads, len(kernel.lines))
        self.steps = [self._built(line) for line in kernel.lines]

    # ------------------------------------------------------------ operands

    def row(self, name: str) -> Array:
        """A register of all threads."""
        if name not in self.rows:
            width = self.kernel.width(name)
            if width is None:
                raise ValueError(f"{name} is no register")
            self.rows[name] = np.zeros(self.size.threads, RAW[width])
        return self.rows[name]

    def get(self, operand: Operand, kind: str) -> Array:
        """What an instruction reads, as its type; it stays the same array for all steps."""
        dtype = np.dtype(TYPES[kind])
        if isinstance(operand, Register):
            row = self.row(operand.name)
            if row.dtype.itemsize * (2 if kind.endswith("x2") else 1) < dtype.itemsize:
                raise ValueError(f"{operand.name} is too narrow for {kind}")
            return row.view(dtype)
        if isinstance(operand, Number):
            bits = 8 * dtype.itemsize * (2 if kind.endswith("x2") else 1)
            if kind == "pred":
                return np.full(self.size.threads, operand.bits != 0)
            raw = np.full(self.size.threads, operand.bits & ((1 << bits) - 1), RAW[bits])
            return raw.view(dtype)
        if isinstance(operand, Word):
            return self._word(operand.name, dtype.itemsize).view(dtype)
        raise ValueError(f"{operand} is no single value")

    def get_type(self, kind: str) -> Any:
        """The type of numpy for a type of PTX."""
        return TYPES[kind]

    def address(self, operand: Operand) -> Callable[[], Array]:
        """Where an instruction reads or writes, in bytes."""
        if not isinstance(operand, Place):
            raise ValueError(f"{operand} is no address")
        base, offset = operand.base, operand.offset
        if isinstance(base, Register):
            row = self.row(base.name)
            signed = row.view(TYPES[f"s{8 * row.dtype.itemsize}"])
            wide = row.dtype.itemsize == 8
            return lambda: (signed if wide else row).astype(np.int64) + offset
        if isinstance(base, Word):
            fixed = self._word(base.name, 4).astype(np.int64) + offset
            return lambda: fixed
        raise ValueError(f"{operand} begins at no register")

    def _word(self, name: str, size: int) -> Array:
        if name in self.special:
            return self.special[name]
        if name in self.kernel.shared:
            at = self.shared.first + self.kernel.shared[name]
        elif name in self.kernel.added:
            at = self.shared.given
        elif name in self.given:
            return np.full(self.size.threads, self.given[name], np.uint64)
        else:
            raise ValueError(f"{name} is unknown")
        return np.full(self.size.threads, at, RAW[8 * size])

    def _special(self) -> dict[str, Array]:
        n, i = self.size.threads, np.arange(self.size.threads, dtype=np.uint32)
        fixed = {"%tid.x": i, "%ntid.x": np.full_like(i, n)}
        fixed |= {"%laneid": i % WARP, "%warpid": i // WARP}
        for axis, count in zip("xyz", self.size.grid, strict=True):
            fixed[f"%ctaid.{axis}"] = np.zeros(n, np.uint32)
            fixed[f"%nctaid.{axis}"] = np.full(n, count, np.uint32)
        for axis in "yz":
            fixed[f"%tid.{axis}"] = np.zeros(n, np.uint32)
            fixed[f"%ntid.{axis}"] = np.ones(n, np.uint32)
        return fixed

    # ------------------------------------------------------------- running

    def _built(self, line: Line) -> Callable[[Mask], Taken]:
        builder = BUILDERS.get(line.words[0])
        if builder is None:
            raise ValueError(f"the emulator has no instruction {line.name}")
        do = builder(self, line)
        touched = set(registers(line.operands))
        product = line.words[0] == "wgmma"
        name = line.name
        guard = self.row(line.guard[0].name) if line.guard else None
        turned = line.guard is not None and line.guard[1]

        def take(active: Mask) -> Taken:
            self.counts[name] += 1
            if not product and (self.pending or self.open) and self._busy(touched):
                self.counts["products waited for by their registers"] += 1
            mask = active
            if guard is not None:
                mask = active & (~guard if turned else guard)
            return (do(mask) if mask is True or mask.any() else None), mask

        return take

    def _busy(self, touched: set[str]) -> bool:
        return any(not touched.isdisjoint(one) for one, _ in (*self.pending, *self.open))

    def run(self, at: tuple[int, int, int]) -> None:
        """One program."""
        for axis, i in zip("xyz", at, strict=True):
            self.special[f"%ctaid.{axis}"][:] = i
        for row in self.rows.values():  # what nobody has written is nothing to rely on
            row.view(np.uint8)[:] = 0x5B if row.dtype != np.bool_ else 0
        self.shared.clear()
        self.pending, self.open, self.copies = [], [], [[]]
        self.flow.clear()
        try:
            with np.errstate(all="ignore"):
                while (i := self.flow.next()) < len(self.steps):
                    self.flow.go(*self.steps[i](self.flow.active))
        except KernelError as fault:
            line = self.kernel.lines[self.flow.line]
            where = f"{self.kernel.name}{at}, {line.source}: {line.text}"
            raise KernelError(f"{fault}\n  in {where}") from None
        if self.pending or self.open or any(self.copies):
            raise KernelError(f"{self.kernel.name}{at} ends with products or copies under way")


def registers(operands: Iterable[Operand]) -> Iterable[str]:
    """Names of those that occur in operands."""
    for operand in operands:
        if isinstance(operand, Register):
            yield operand.name
        elif isinstance(operand, Many):
            yield from registers(operand.items)
        elif isinstance(operand, Place):
            yield from registers([operand.base])


def put(out: Array, value: Any, mask: Mask) -> None:
    """Write to a register, or to threads' part of it."""
    np.copyto(out, value, where=mask, casting="unsafe")
