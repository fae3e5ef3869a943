"""Instructions that go somewhere: to memory, to another thread, or to another line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tools.ptx.arithmetic import ANYWHERE, BITS, narrow, wide
from tools.ptx.faults import KernelError
from tools.ptx.machine import TYPES, WARP, Array, Machine, Mask, Step, put, step
from tools.ptx.read import Line, Many, Operand, Register, Word


def rows(m: Machine, operand: Operand) -> list[Array]:
    """The registers of an operand, which may be several in braces."""
    items: Sequence[Operand] = operand.items if isinstance(operand, Many) else (operand,)
    widths = [m.kernel.width(x.name) for x in items if isinstance(x, Register)]
    kind = f"b{next(iter(widths), 32)}"
    return [m.row(x.name) if isinstance(x, Register) else m.get(x, kind) for x in items]


def space(line: Line) -> str:
    """Which memory an instruction means."""
    for word in line.words:
        name = word.partition("::")[0]
        if name in ("global", "shared", "param", "local", "const"):
            return name
    return "generic"


def _size(line: Line) -> int:
    return np.dtype(TYPES[line.words[-1]]).itemsize * (2 if line.words[-1].endswith("x2") else 1)


@step("ld")
def load(m: Machine, line: Line) -> Step:
    """Registers get what lies in memory."""
    outs, kind, size = rows(m, line.operands[0]), TYPES[line.words[-1]], _size(line)
    at = m.address(line.operands[1])
    if space(line) == "param":
        return _parameter(m, at, outs, kind)
    means = _meant(line, at)

    def run(mask: Mask) -> None:
        shared, places = means(mask)
        who, data = (m.shared if shared else m.memory).load(places, size * len(outs), mask)
        for i, out in enumerate(outs):
            part = np.ascontiguousarray(data[:, size * i : size * (i + 1)])
            out[who] = _stretched(part.view(kind)[:, 0], out)

    return run


def _stretched(values: Array, out: Array) -> Array:
    """As wide as a register, with the sign where there is one."""
    if values.dtype.kind == "i":
        return values.astype(f"i{out.dtype.itemsize}").view(out.dtype)
    return values.view(f"u{values.dtype.itemsize}").astype(out.dtype)


def _parameter(m: Machine, at: Callable[[], Array], outs: list[Array], kind: Any) -> Step:
    """By its name or by its address, which may differ from thread to thread."""
    if len(outs) > 1:
        raise ValueError("the emulator reads parameters one by one")
    steps = np.arange(np.dtype(kind).itemsize)

    def run(mask: Mask) -> None:
        start = at() if mask is True else np.where(mask, at(), 0)
        if start.min() < 0 or start.max() + len(steps) > len(m.parameters):
            raise KernelError("an address beyond the parameters")
        data = m.parameters[start[:, None] + steps].view(kind)[:, 0]
        put(outs[0], _stretched(data, outs[0]), mask)

    return run


@step("st")
def keep(m: Machine, line: Line) -> Step:
    """Memory gets what registers hold."""
    given, size = rows(m, line.operands[1]), _size(line)
    at = m.address(line.operands[0])
    means = _meant(line, at)

    def run(mask: Mask) -> None:
        shared, places = means(mask)
        parts = [x.astype(f"u{size}")[:, None].view(np.uint8) for x in given]
        data = np.concatenate(parts, 1)
        if shared:
            who = np.arange(len(data)) if mask is True else np.nonzero(mask)[0]
            m.shared.store(places, data[who], who)
        else:
            m.memory.store(places, data, mask)

    return run


def _meant(line: Line, at: Callable[[], Array]) -> Callable[[Mask], tuple[bool, Array]]:
    """Whether an access is to shared memory, and where; a generic one tells by its addresses."""
    kind = space(line)
    if kind not in ("global", "shared", "generic"):
        raise ValueError(f"the emulator has no {kind} memory: {line.text}")

    def means(mask: Mask) -> tuple[bool, Array]:
        places = at()
        if kind != "generic":
            return kind == "shared", places
        shared = (places >= int(ANYWHERE))[mask]
        if shared.any() != shared.all():
            raise KernelError("an address of shared memory for some threads, not for others")
        return bool(shared.any()), places - int(ANYWHERE) * bool(shared.any())

    return means


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "min": lambda a, b: min(a, b),
    "max": lambda a, b: max(a, b),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "exch": lambda _, b: b,
}


@step("atom", "red")
def change(m: Machine, line: Line) -> Step:
    """Memory is changed where it lies, by one thread after another."""
    kind, size = line.words[-1], _size(line)
    returns = line.words[0] == "atom"
    place, *given = line.operands[1 if returns else 0 :]
    outs = rows(m, line.operands[0]) if returns else []
    values, at = [rows(m, x) for x in given], m.address(place)
    name = next((x for x in line.words if x in CHANGES or x == "cas"), "")
    shared = space(line) == "shared"

    def one(i: int, j: int, address: Array) -> None:
        before = _read_one(m, address, size, i, shared)
        old = wide(before.view(TYPES[kind]), kind) if kind in TYPES else before
        news = [wide(x[j][i : i + 1].astype(f"u{size}").view(TYPES[kind]), kind) for x in values]
        if name == "cas":
            new = news[1] if old[0] == news[0][0] else old
        else:
            new = np.array([CHANGES[name](a, b) for a, b in zip(old, news[0], strict=True)])
        done = narrow(new, kind) if kind[0] in "fb" and "f" in kind else new.astype(old.dtype)
        _write_one(m, address, done.view(np.uint8), i, shared)
        if returns:
            outs[j][i] = before.view(f"u{size}")[0]

    if not returns and name == "add" and kind in ("f32", "u32", "s32") and not shared:
        return _added(m, at, [x.view(TYPES[kind]) for x in values[0]])

    def run(mask: Mask) -> None:
        start = at()
        who = range(len(start)) if mask is True else np.nonzero(mask)[0]
        for i in who:
            for j in range(len(values[0])):
                one(int(i), j, start + j * size)

    return run


def _added(m: Machine, at: Callable[[], Array], values: list[Array]) -> Step:
    """Sums in tensors, of one number of a thread or of several next to one another."""
    size = values[0].itemsize

    def run(mask: Mask) -> None:
        start = at()
        if (start % (size * len(values)) * mask).any():
            raise KernelError("a sum at an address that isn't a multiple of its bytes")
        for j, x in enumerate(values):
            m.memory.add(start + j * size, x, mask)

    return run


def _read_one(m: Machine, at: Array, size: int, i: int, shared: bool) -> Array:
    mask = np.zeros(len(at), bool)
    mask[i] = True
    if shared:
        return m.shared.one(int(at[i]), size).copy()
    return m.memory.load(at, size, mask)[1][0].copy()


def _write_one(m: Machine, at: Array, data: Array, i: int, shared: bool) -> None:
    if shared:
        m.shared.one(int(at[i]), len(data))[:] = data
        return
    mask = np.zeros(len(at), bool)
    mask[i] = True
    m.memory.store(at, np.broadcast_to(data, (len(at), len(data))), mask)


# ------------------------------------------------------------ between threads


def whole(mask: Mask, threads: int, group: int = WARP) -> Array:
    """Which warps, or groups of them, take part, as a whole: (N / group)."""
    part = np.broadcast_to(mask, threads).reshape(-1, group)
    every = np.logical_and.reduce(part, 1)
    if (part.any(1) != every).any():
        raise KernelError("an instruction of whole warps that some threads take")
    return every


@step("shfl")
def shuffle(m: Machine, line: Line) -> Step:
    """Threads of a warp read each other's registers."""
    first = line.operands[0]
    outs = first.items if isinstance(first, Many) else (first,)
    a, by, how = m.get(line.operands[1], "b32"), *(m.get(x, "u32") for x in line.operands[2:4])
    lane = np.arange(m.size.threads) % WARP
    start = np.arange(m.size.threads) - lane
    kind = next(x for x in line.words if x in ("idx", "up", "down", "bfly"))
    place = m.get(outs[0], "b32")
    holds = m.get(outs[1], "pred") if len(outs) > 1 else None

    def run(mask: Mask) -> None:
        bound, part = (how & 31).astype(int), (how >> 8 & 31).astype(int)
        n, least = by.astype(int) & 31, lane & part
        most = least | (bound & ~part)
        to = {"idx": least | (n & ~part), "up": lane - n, "down": lane + n, "bfly": lane ^ n}[kind]
        fine = to >= most if kind == "up" else to <= most
        asked = start + np.where(fine, to, lane)
        if mask is not True and not mask[asked[mask]].all():
            raise KernelError("a thread asks one that doesn't take part")
        put(place, a[asked], mask)
        if holds is not None:
            put(holds, fine, mask)

    return run


@step("redux")
def reduce(m: Machine, line: Line) -> Step:
    """All threads of a warp get the sum, the least or the greatest of theirs."""
    kind, name = line.words[-1], line.words[2]
    out, a = m.get(line.operands[0], kind), m.get(line.operands[1], kind)
    many = {"add": np.add, "min": np.minimum, "max": np.maximum, **BITS}[name]

    def run(mask: Mask) -> None:
        whole(mask, m.size.threads)
        found = many.reduce(a.reshape(-1, WARP), 1, dtype=a.dtype)  # type: ignore[union-attr]
        put(out, np.repeat(found, WARP), mask)

    return run


@step("vote", "activemask")
def vote(m: Machine, line: Line) -> Step:
    """What the threads of a warp say, as bits or as one answer."""
    mine = line.words[0] == "activemask"
    kind = "ballot" if mine else line.words[2]
    out = m.get(line.operands[0], "b32" if kind == "ballot" else "pred")
    a = np.ones(m.size.threads, bool) if mine else m.get(line.operands[1], "pred")

    def run(mask: Mask) -> None:
        there = np.broadcast_to(mask, a.shape).reshape(-1, WARP)
        said = a.reshape(-1, WARP) & there
        if kind == "ballot":
            found = (said.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(1)
        else:
            every, some = (said | ~there).all(1), said.any(1)
            found = {"all": every, "any": some, "uni": every | ~some}[kind]
        put(out, np.repeat(found, WARP), mask)

    return run


# ------------------------------------------------------------------ the way


@step("bra")
def branch(m: Machine, line: Line) -> Step:
    """To another line, all threads together."""
    label = line.operands[0]
    if not isinstance(label, Word):
        raise ValueError(f"a branch to no label: {line.text}")
    to = m.kernel.labels[label.name]

    return lambda _: to


@step("ret", "exit")
def leave(m: Machine, _: Line) -> Step:
    """A thread's way ends."""
    return lambda _: len(m.kernel.lines)


@step("trap")
def stop(_: Machine, __: Line) -> Step:
    """The program gives up."""

    def run(_mask: Mask) -> None:
        raise KernelError("the program stops itself")

    return run


@step("bar", "barrier")
def meet(m: Machine, line: Line) -> Step:
    """All threads wait for one another, or as many as are told; or those of each warp.

    Those of a warp are together anyway. A barrier of some counts for all where races are sought.
    """
    if "warp" in line.words:
        return lambda _: None
    if "sync" not in line.words:
        raise ValueError(f"the emulator has no such barrier: {line.name}")
    which = m.get(line.operands[0], "u32")
    many = m.get(line.operands[1], "u32") if len(line.operands) > 1 else None

    def run(mask: Mask) -> None:
        count = m.size.threads if many is None else int(many[0])
        together = mask is True and count == m.size.threads
        if together or m.flow.wait(mask, which, count):
            m.shared.meet()

    return run


@step("fence", "membar")
def fence(m: Machine, line: Line) -> Step:
    """What was written is handed over to products."""
    handed = any(x.startswith("proxy") for x in line.words)
    return lambda _: m.shared.fence() if handed else None


@step("griddepcontrol", "nanosleep", "prefetch", "discard", "applypriority")
def nothing(_: Machine, __: Line) -> Step:
    """Where programs and kernels run one after another, there is nothing to do."""
    return lambda _: None


@step("createpolicy")
def policy(m: Machine, line: Line) -> Step:
    """How long a cache should keep what is read: no matter here."""
    out = m.get(line.operands[0], "u64")
    return lambda mask: put(out, 0, mask)
