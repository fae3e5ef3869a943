"""Depth as one list: which block runs at each application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from anyformer.errors import SpecError
from anyformer.spec.lora import Lora
from anyformer.spec.node import Natural, Positive, node
from anyformer.spec.norm import Norm

if TYPE_CHECKING:
    from anyformer.spec.model import Stack, Sublayer


@node
class Plain:
    """Every application has a block of its own."""


@node
class Shared:
    """`unique` blocks for all applications (arXiv:2104.06022; ALBERT is sequence).

    For A, B, C over six: sequence AABBCC, cycle ABCABC, cycle_reverse ABCCBA; middle_cycle keeps
    the first and the last block apart and cycles the others between them.
    """

    unique: Positive
    order: Literal["sequence", "cycle", "cycle_reverse", "middle_cycle"] = "sequence"


@node
class Looped:
    """A prelude, a core that runs `loops` times, a coda (arXiv:2502.05171)."""

    prelude: Natural = 1
    core: Positive = 1
    coda: Natural = 1
    loops: Positive = 2


@node
class Superblocks:
    """Superblocks of `layers` blocks: a block runs `each` times, a superblock `repeat` times."""

    layers: Positive = 1
    each: Positive = 1
    repeat: Positive = 1
    around: bool = False  # what enters a superblock is added to what leaves it
    norm: Norm | None = None  # where a superblock ends, after that sum
    one_norm: bool = False  # the same norm for all superblocks

    @property
    def span(self) -> int:
        """Applications of blocks in one superblock."""
        return self.layers * self.each * self.repeat


@node
class Sandwich:
    """Attention alone for the first `coefficient` layers, feed-forward alone for the last."""

    coefficient: Positive = 1


@node
class Explicit:
    """The list itself."""

    order: tuple[Natural, ...]


Schedule = Plain | Shared | Looped | Superblocks | Sandwich | Explicit
Own = Literal["norm", "gain", "relative", "attention", "cross", "feedforward"]


@dataclass(frozen=True)
class Layout:
    """The blocks of a stack, which of them each application runs, and who lends to whom.

    Where applications have parts of their own, each has a block; `lenders` names the one whose
    other parts it uses, itself if it has them all. A block whose parts others use has a LoRA, and
    they have too, if the stack has one.
    """

    blocks: tuple[tuple[Sublayer, ...], ...]
    schedule: tuple[int, ...]
    lenders: tuple[int, ...]
    loras: tuple[Lora | None, ...]


def layout(stack: Stack) -> Layout:
    """Blocks and schedule of a stack."""
    if isinstance(stack.schedule, Sandwich):
        blocks = _sandwich(stack, stack.schedule.coefficient)
        numbers = tuple(range(len(blocks)))
        return Layout(blocks, numbers, numbers, (None,) * len(blocks))
    order = _order(stack.schedule, stack.depth)
    kinds = (stack.block, *stack.others)
    chosen = stack.kinds or (tuple(range(len(kinds))))
    apart = bool(stack.own) or stack.lora is not None
    numbers = order if apart else range(max(order) + 1)
    blocks = tuple(kinds[chosen[i % len(chosen)]] for i in numbers)
    if not apart:
        return Layout(blocks, order, tuple(numbers), (None,) * len(blocks))
    loras = tuple(stack.lora if order.count(i) > 1 else None for i in order)
    lenders = tuple(order.index(i) for i in order)
    return Layout(blocks, tuple(range(len(order))), lenders, loras)


def closing(stack: Stack) -> tuple[Norm, ...]:
    """The norms where superblocks end."""
    schedule = stack.schedule
    if not isinstance(schedule, Superblocks) or schedule.norm is None:
        return ()
    return (schedule.norm,) * (1 if schedule.one_norm else stack.depth // schedule.span)


def _order(schedule: Schedule, depth: int) -> tuple[int, ...]:
    if isinstance(schedule, Plain):
        return tuple(range(depth))
    if isinstance(schedule, Shared):
        return tuple(
            _shared(i, depth, min(schedule.unique, depth), schedule.order) for i in range(depth)
        )
    if isinstance(schedule, Looped):
        first, last = schedule.prelude, schedule.prelude + schedule.core
        core = tuple(range(first, last)) * schedule.loops
        return (*range(first), *core, *range(last, last + schedule.coda))
    if isinstance(schedule, Superblocks):
        return _superblocks(schedule, depth)
    if isinstance(schedule, Explicit):
        return schedule.order
    raise SpecError(f"{schedule!r} has no list of its own")


def _shared(i: int, depth: int, unique: int, order: str) -> int:
    if order == "sequence":
        return i * unique // depth
    if order == "cycle":
        return i % unique
    if order == "cycle_reverse":  # cycles forwards; the last round runs backwards
        back = i >= depth - unique and depth > unique
        return depth - 1 - i if back else i % unique
    if i in (0, depth - 1) or unique < 3:
        return 0 if i == 0 else unique - 1 if i == depth - 1 else min(1, unique - 1)
    return 1 + (i - 1) % (unique - 2)


def _superblocks(schedule: Superblocks, depth: int) -> tuple[int, ...]:
    one = [layer for layer in range(schedule.layers) for _ in range(schedule.each)]
    return tuple(
        s * schedule.layers + layer
        for s in range(depth // schedule.span)
        for _ in range(schedule.repeat)
        for layer in one
    )


def _sandwich(stack: Stack, coefficient: int) -> tuple[tuple[Sublayer, ...], ...]:
    """'a'·k + block·(depth - k) + 'f'·k, from the kinds of the block's sublayers."""
    block = stack.block
    first = tuple(s for s in block if s.kind == "attention")[:1]
    last = tuple(s for s in block if s.kind == "feedforward")[-1:]
    between = (block,) * (stack.depth - coefficient)
    return (first,) * coefficient + between + (last,) * coefficient
