"""Reversible residuals: two streams, and activations computed again backwards (2001.04451).

Sublayers take turns: the first adds what it says of stream 2 to stream 1, the next what it says
of stream 1 to stream 2. Only the last pair is kept; going back, each sublayer's addition is
computed again and taken off. The output is the mean of the streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from anyformer.ops.chunked import random_from, random_state
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
    if not learns or call.following is not None and call.following.is_cache:
        streams = [x, x]
        for turn, (sublayer, path) in enumerate(steps):
            mine, other = turn % 2, 1 - turn % 2
            streams[mine] = streams[mine] + addition(sublayer, streams[other], call, path)
        return (streams[0] + streams[1]) / 2
    one, two = _Reversible.apply(steps, call, x, x, *_learned(stack, call))  # type: ignore[misc]
    return (one + two) / 2


def addition(sublayer: Any, x: Tensor, call: Call, path: str) -> Tensor:
    """What a sublayer adds to the other stream."""
    return sublayer.residual.added(sublayer.output(x, call, path))


def _learned(stack: nn.Module, call: Call) -> list[Tensor]:
    """Every tensor that the sublayers read and that wants a gradient."""
    shared = [call.context, *(call.untied or ())]
    tensors = [*stack.parameters(), *(t for t in shared if t is not None)]
    return [t for t in tensors if t.requires_grad]


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, steps: list[Step], call: Call, one: Tensor, two: Tensor, *learned: Tensor):  # type: ignore[override]
        streams, states = [one, two], []
        for turn, (sublayer, path) in enumerate(steps):
            mine, other = turn % 2, 1 - turn % 2
            states.append(random_state(one))
            streams[mine] = streams[mine] + addition(sublayer, streams[other], call, path)
        ctx.steps, ctx.call, ctx.states, ctx.learned = steps, call, states, learned
        ctx.save_for_backward(*(s.detach() for s in streams))
        return tuple(s.clone() if s is one or s is two else s for s in streams)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        streams, found = [s.clone() for s in ctx.saved_tensors], list(grads)
        learned: tuple[Tensor, ...] = ctx.learned
        sums: list[Tensor | None] = [None] * len(learned)
        for turn in reversed(range(len(ctx.steps))):
            mine, other = turn % 2, 1 - turn % 2
            sublayer, path = ctx.steps[turn]
            with torch.enable_grad(), random_from(ctx.states[turn], streams[0]):
                leaf = streams[other].detach().requires_grad_()
                added = addition(sublayer, leaf, ctx.call, path)
                new = torch.autograd.grad(added, [leaf, *learned], found[mine], allow_unused=True)
            streams[mine] = streams[mine] - added.detach()
            found[other] = found[other] + new[0]
            sums = [a if b is None else b if a is None else a + b for a, b in zip(sums, new[1:], strict=True)]
        return (None, None, *found, *sums)
