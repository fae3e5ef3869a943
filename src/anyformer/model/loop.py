"""A stack whose blocks run again: vectors by turn, rounds, injection, halting, lent keys.

A stack without a loop never comes here. Letters: B batch, N positions, d width.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anyformer.parts.loop import Exiting, Loop, Record
from anyformer.parts.state import Call
from anyformer.spec.schedule import Ring

if TYPE_CHECKING:
    from anyformer.model.stack import Stack

Pairs = dict[str, tuple[Tensor, Tensor]]  # keys and values by sublayer


@dataclass(frozen=True)
class Plan:
    """What the loop of a stack is, from its spec."""

    ring: Ring | None
    turns: tuple[tuple[int, int], ...]  # of each application: where its block first ran, its turn
    again: frozenset[int]  # applications whose blocks run again

    @property
    def sizes(self) -> tuple[int, int]:
        """Turns of the block that has most, and rounds."""
        return 1 + max(turn for _, turn in self.turns), 0 if self.ring is None else self.ring.rounds


def plan_of(ring: Ring | None, turns: tuple[tuple[int, int], ...]) -> Plan:
    """The plan of a stack's applications."""
    firsts = [first for first, _ in turns]
    found = {i for i, first in enumerate(firsts) if firsts.count(first) > 1}
    if ring is not None:
        found |= set(range(ring.first, ring.end))
    return Plan(ring, turns, frozenset(found))


@dataclass
class Pass:
    """One pass through a stack with a loop."""

    stack: Stack
    loop: Loop
    plan: Plan
    call: Call
    below: Tensor  # what entered the stack
    entered: Tensor  # what entered the superblock
    stores: dict[int, Pairs] = field(default_factory=dict)  # by first application of a block

    def apply(self, i: int, x: Tensor, turn: int) -> Tensor:
        """The application i of a block, at one of its turns."""
        stack, call = self.stack, self.call
        if call.hidden is not None:
            call.hidden.append(x)
        self.entered = x if i % stack.span == 0 else self.entered
        if i in self.plan.again:
            x = self.loop.stepped(x, turn, call.newest(x.shape[1]))
            if self.loop.spec.keys == "first":
                store = self.stores.setdefault(self.plan.turns[i][0], {})
                call = replace(call, kept=store, reads=bool(store))
        block: Any = stack.blocks[stack.schedule[i]]
        rate = stack.spec.layer_dropout if stack.training else 0.0
        skipped = rate > 0 and torch.rand(()).item() < rate
        x = block.skip(x, call, str(i)) if skipped else block(x, call, str(i))
        if i == 0 and turn == 0 and stack.convolution is not None:
            x = stack.convolution(x, self.below, call)
        return stack.blank(stack.closed(x, self.entered, i + 1), call)

    def round(self, t: int, x: Tensor) -> Tensor:
        """All blocks of the loop once; beyond the schedule's rounds as in the last of them."""
        ring = self.plan.ring
        assert ring is not None
        first = ring.first + min(t, ring.rounds - 1) * ring.size
        for i in range(first, first + ring.size):
            x = self.apply(i, x, t)
        return x

    def skip(self, t: int, x: Tensor) -> None:
        """A round that is left out: its attentions remember what they would have read."""
        ring, call = self.plan.ring, self.call
        assert ring is not None
        first = ring.first + t * ring.size
        for i in range(first, first + ring.size if call.following is not None else first):
            block: Any = self.stack.blocks[self.stack.schedule[i]]
            block.skip(x, call, str(i))


def run_loop(stack: Stack, loop: Loop, plan: Plan, x: Tensor, call: Call) -> Tensor:
    """x (B, N, d) -> (B, N, d) through what is before the loop, its rounds, and what is behind."""
    x = stack.blank(x, call)
    run = Pass(stack, loop, plan, call, x, x)
    ring, depth = plan.ring, len(stack.schedule)
    for i in range(depth if ring is None else ring.first):
        x = run.apply(i, x, plan.turns[i][1])
    if ring is None:
        return x
    x = rounds(run, x)
    for i in range(ring.end, depth):
        x = run.apply(i, x, 0)
    return x


def rounds(run: Pass, entered: Tensor) -> Tensor:
    """The rounds of a loop over what enters it (B, N, d)."""
    loop, call, spec = run.loop, run.call, run.loop.spec
    count, read = loop.count(), loop.read(entered)
    learns = loop.training and torch.is_grad_enabled() and spec.window is not None
    silent = max(count - (spec.window or count), 0) if learns else 0
    keep = None if call.keep is None else call.keep[:, -entered.shape[1] :]
    record = loop.begin(entered, keep)
    h = torch.zeros_like(entered) if spec.start == "zeros" else entered
    for t in range(count):
        with torch.no_grad() if t < silent else nullcontext():
            new = run.round(t, loop.injected(h, entered, read))
            h = new if record is None else record.after(t, h, new, t + 1 == count)
        if t + 1 == silent and torch.is_autocast_enabled(h.device.type):
            torch.clear_autocast_cache()  # casts that were made without gradients
    for t in range(count, loop.rounds):
        run.skip(t, h)
    return h if record is None else _answered(record, call, keep)


def _answered(record: Record, call: Call, keep: Tensor | None) -> Tensor:
    """What leaves the loop; the call is told what the halting adds to the loss."""
    each = record.extra()
    call.extra[record.name] = (each if keep is None else each * keep).sum()
    if isinstance(record, Exiting) and record.states:
        call.exits = record.states, torch.cat(record.shares, -1)
    return record.answer()
