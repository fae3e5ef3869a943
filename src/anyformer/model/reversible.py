"""Reversible residuals: two streams, and activations computed again backwards (2001.04451).

Sublayers take turns: the first adds what it says of stream 2 to stream 1, the next what it says
of stream 1 to stream 2. Only the last pair is kept; going back, each sublayer's addition is
computed again and taken off. The output is the mean of the streams.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from anyformer.ops.chunked import random_from, random_state
from anyformer.ops.relative import leaf
from anyformer.parts.state import Call

if TYPE_CHECKING:
    from anyformer.model.stack import Stack

Step = tuple[nn.Module, str]  # a sublayer and the path of its application


def run_reversible(stack: Stack, x: Tensor, call: Call) -> Tensor:
    """x (B, N, d) -> (B, N, d) through two streams that both start as x."""
    steps: list[Step] = [
        (sublayer, f"{i}.{j}")
        for i, b in enumerate(stack.schedule)
        for j, sublayer in enumerate(stack.blocks[b])  # type: ignore[arg-type]
    ]
    learns = torch.is_grad_enabled() and (x.requires_grad or _learned(stack, call))
    if not learns or (call.following is not None and call.following.is_cache):
        streams = [x, x]
        for turn, (sublayer, path) in enumerate(steps):
            mine, other = turn % 2, 1 - turn % 2
            streams[mine] = streams[mine] + addition(sublayer, streams[other], call, path)
        return (streams[0] + streams[1]) / 2
    one, two = _Reversible.apply(steps, call, x, x, *_learned(stack, call))  # type: ignore[misc]
    return (one + two) / 2


def addition(sublayer: Any, x: Tensor, call: Call, path: str) -> Tensor:
    """What a sublayer adds to the other stream."""
    *_, residual = sublayer.used
    return residual.added(sublayer.output(x, call, path))


def _learned(stack: Stack, call: Call) -> list[Tensor]:
    """Every tensor that the sublayers read and that wants a gradient."""
    own = [*stack.blocks.parameters(), *stack.relative.parameters()]
    return [*(t for t in own if t.requires_grad), *_shared(call)]


def _shared(call: Call) -> list[Tensor]:
    """Tensors that were made before the stack runs and that want a gradient."""
    made = [call.context, *(call.untied or ()), call.distances and call.distances.rows]
    return [t for t in made if t is not None and t.requires_grad]


def _apart(call: Call) -> Call:
    """The call with what was made before as leaves: it may be made from the stack's own weights."""
    untied = call.untied and (leaf(call.untied[0]), leaf(call.untied[1]))
    found = call.distances and replace(call.distances, rows=leaf(call.distances.rows))
    return replace(call, context=leaf(call.context), untied=untied, distances=found)


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, steps: list[Step], call: Call, one: Tensor, two: Tensor, *learned: Tensor
    ) -> tuple[Tensor, ...]:  # type: ignore[override]
        streams, states = [one, two], []
        for turn, (sublayer, path) in enumerate(steps):
            mine, other = turn % 2, 1 - turn % 2
            states.append(random_state(one))
            streams[mine] = streams[mine] + addition(sublayer, streams[other], call, path)
        ctx.steps, ctx.call, ctx.states = steps, _apart(call), states
        ctx.own = learned[: len(learned) - len(_shared(call))]
        ctx.save_for_backward(*(s.detach() for s in streams))
        return tuple(s.clone() if s is one or s is two else s for s in streams)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        streams, found = [s.clone() for s in ctx.saved_tensors], list(grads)
        learned = [*ctx.own, *_shared(ctx.call)]
        sums: list[Tensor | None] = [None] * len(learned)
        for turn in reversed(range(len(ctx.steps))):
            mine, other = turn % 2, 1 - turn % 2
            sublayer, path = ctx.steps[turn]
            with torch.enable_grad(), random_from(ctx.states[turn], streams[0]):
                heard = streams[other].detach().requires_grad_()
                added = addition(sublayer, heard, ctx.call, path)
                new = torch.autograd.grad(added, [heard, *learned], found[mine], allow_unused=True)
            streams[mine] = streams[mine] - added.detach()
            found[other] = found[other] + new[0]
            sums = [
                a if b is None else b if a is None else a + b
                for a, b in zip(sums, new[1:], strict=True)
            ]
        return (None, None, *found, *sums)
