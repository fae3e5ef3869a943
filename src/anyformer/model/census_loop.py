"""The modules of a loop and what they multiply, from the spec alone.

Letters: B batch, N positions, d width, R rounds.
"""

from __future__ import annotations

from anyformer.model.entry import Entry, entry, notes
from anyformer.spec import Loop, Route, Stack
from anyformer.spec.schedule import ring, turns


def rounds(stack: Stack) -> int:
    """Rounds of a stack's loop; 0 where it has none."""
    found = ring(stack)
    return 0 if found is None else found.rounds


def loop(stack: Stack, dim: int) -> Entry:
    """Vectors by turn, the map of an injection, and a unit that halts."""
    spec, most = stack.loop, 1 + max(turn for _, turn in turns(stack))
    assert spec is not None
    return entry(
        "loop",
        "Loop",
        _inject(spec, dim),
        _halt(spec, dim, rounds(stack)),
        detail=notes(spec, "halt"),
        step=(most, dim) if spec.step == "learned" else None,
    )


def _inject(spec: Loop, dim: int) -> Entry | None:
    if spec.inject in ("none", "add"):
        return None
    stable = spec.inject == "stable"
    return entry(
        "inject",
        "Inject",
        detail=spec.inject,
        weight=(dim, dim if stable else 2 * dim),
        bias=(dim,) if spec.inject == "gated" else None,
        decay=(dim,) if stable else None,
        delta=(dim,) if stable else None,
    )


def _halt(spec: Loop, dim: int, count: int) -> Entry | None:
    if spec.halt is None:
        return None
    outputs = count if isinstance(spec.halt, Route) else 1
    told = type(spec.halt).__name__, notes(spec.halt)
    return entry("halt", told[0], detail=told[1], weight=(outputs, dim), bias=(outputs,))


def products(stack: Stack, dim: int) -> int:
    """Multiplications for one position: of what is injected, and of halting or routing."""
    spec, count, total = stack.loop, rounds(stack), 0
    if spec is None:
        return 0
    if spec.inject in ("concat", "gated"):
        total += dim * dim * (1 + count)
    if spec.inject == "stable":
        total += dim * dim
    if spec.halt is not None:
        total += dim * (count if isinstance(spec.halt, Route) else count - 1)
    return total


def lent(stack: Stack) -> tuple[bool, ...]:
    """For each application whether it reads keys and values that another one made."""
    first = stack.loop is not None and stack.loop.keys == "first"
    return tuple(first and turn > 0 for _, turn in turns(stack))
