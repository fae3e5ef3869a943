"""Depth as one list: which block runs at each application."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from anyformer.errors import SpecError
from anyformer.spec.lora import Lora
from anyformer.spec.node import Natural, Positive, node
from anyformer.spec.norm import Norm

if TYPE_CHECKING:
    from anyformer.spec.model import Stack, Sublayer


Order = Literal["sequence", "cycle", "cycle_reverse", "middle_cycle", "middle_sequence"]


@node
class Plain:
    """Every application has a block of its own."""


@node
class Shared:
    """`unique` blocks for all applications (arXiv:2104.06022; ALBERT is sequence).

    For A, B, C over six: sequence AABBCC, cycle ABCABC, cycle_reverse ABCCBA; middle_cycle and
    middle_sequence keep the first and the last block apart, and the others go round or run on
    between them (arXiv:2507.10524).
    """

    unique: Positive
    order: Order = "sequence"


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
Own = Literal["norm", "gain", "relative", "attention", "cross", "feedforward", "out", "down"]
LAST = ("out", "down")  # the last maps of attentions and of feed-forward


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


@dataclass(frozen=True)
class Ring:
    """The applications that a stack runs in rounds: the first, how many a round has, and rounds."""

    first: int
    size: int
    rounds: int

    @property
    def end(self) -> int:
        """The first application behind the loop."""
        return self.first + self.size * self.rounds


def turns(stack: Stack) -> tuple[tuple[int, int], ...]:
    """For each application: the one that first ran its block, and the times it ran before."""
    plan = layout(stack)
    order = [plan.lenders[b] for b in plan.schedule]
    return tuple((order.index(b), order[:i].count(b)) for i, b in enumerate(order))


def ring(stack: Stack) -> Ring | None:
    """The rounds of a stack: blocks that run once, the same several again and again, then once."""
    order = [first for first, _ in turns(stack)]
    again = [i for i, b in enumerate(order) if order.count(b) > 1]
    if not again:
        return _once_round(stack)
    core = order[again[0] : again[-1] + 1]
    size = core.index(core[0], 1)
    whole = len(set(core[:size])) == size and len(core) % size == 0
    whole = whole and all(b == core[i % size] for i, b in enumerate(core))
    return Ring(again[0], size, len(core) // size) if whole else None


def _once_round(stack: Stack) -> Ring | None:
    """The one round of a schedule that could have more."""
    schedule, depth = stack.schedule, stack.depth
    if isinstance(schedule, Looped):
        return Ring(schedule.prelude, schedule.core, 1)
    if isinstance(schedule, Shared) and schedule.unique == depth:
        if schedule.order == "cycle" or depth == 1:
            return Ring(0, depth, 1)
        if schedule.order == "middle_cycle" and depth > 2:
            return Ring(1, depth - 2, 1)
    return None


def with_rounds(stack: Stack, rounds: int) -> Stack:
    """The stack with another number of rounds, as for more or fewer of them at test time."""
    found = ring(stack)
    if found is None or rounds < 1:
        raise SpecError(
            "another number of rounds, 1 at least, needs a schedule that goes round: "
            "Looped(…), or Shared(unique=1) or Shared(order='cycle')"
        )
    depth = stack.depth + found.size * (rounds - found.rounds)
    order = _order(stack.schedule, stack.depth)
    core = order[found.first : found.first + found.size] * rounds
    explicit = Explicit(order=(*order[: found.first], *core, *order[found.end :]))
    looped = Looped(
        prelude=found.first, core=found.size, coda=stack.depth - found.end, loops=rounds
    )
    for schedule in (stack.schedule, looped) if isinstance(stack.schedule, Shared) else (looped,):
        made = replace(stack, depth=depth, schedule=schedule)
        if _order(schedule, depth) == explicit.order and ring(made) is not None:
            return made
    return replace(stack, depth=depth, schedule=explicit)


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
    if order == "middle_sequence":
        return 1 + (i - 1) * (unique - 2) // (depth - 2)
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
