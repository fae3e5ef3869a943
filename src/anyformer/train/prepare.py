"""What is done to the blocks of a model before it is trained: compile each, or compute it again.

Only a block's `forward` is replaced, so names and weights stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from anyformer.errors import SpecError
from anyformer.model.stack import Block, Stack
from anyformer.parts.attention import Attention
from anyformer.parts.blocks import BlockSparse
from anyformer.parts.fixed import Fixed
from anyformer.parts.state import Call
from anyformer.train import float8, ranks
from anyformer.train.settings import Settings

Forward = Callable[[Block, Any, Call, str], Any]


def prepare(module: nn.Module, settings: Settings) -> None:
    """Narrow, compile and recompute the blocks of every stack in a module, as the settings ask."""
    blocks = [m for m in module.modules() if isinstance(m, Block)]
    stacks = [m for m in module.modules() if isinstance(m, Stack)]
    asked = [name for name, there in _changes(settings).items() if there]
    if asked and any(stack.spec.reversible for stack in stacks):
        raise SpecError(
            f"{asked[0]} changes blocks, and a reversible stack runs its sublayers one by one: "
            "leave it out, or set stack.reversible=False"
        )
    if settings.float8:
        count = float8.narrow(module)
        if ranks.rank() == 0:
            ranks.say(f"{count} maps in float8")
    trained = [b for b in blocks if any(p.requires_grad for p in b.parameters())]
    for block in blocks if settings.compile else ():
        _replace(block, _compiled(block))
    for stack in stacks if settings.compile and not settings.recompute else ():
        stack.hands, stack.last = True, torch.compile(stack.last)
    for block in trained if settings.recompute else ():
        _replace(block, _recomputed(block.forward.__func__))
    for block in blocks if settings.stream == "bfloat16" else ():
        _replace(block, _rounded(block.forward.__func__))


def _changes(settings: Settings) -> dict[str, bool]:
    """What runs whole blocks otherwise, and whether it is asked for."""
    return {
        "compile=True": settings.compile,
        "stream='bfloat16'": settings.stream == "bfloat16",
    }


def _replace(block: Block, forward: Forward) -> None:
    """Give a block another forward; it is bound, so that a copy of the block has its own."""
    block.forward = MethodType(forward, block)  # type: ignore[method-assign]


def _compiled(block: Block) -> Forward:
    """The block compiled; where an application is like the next, they share one graph.

    Masks are made before: one that torch 2.11 makes while it compiles has no fields for whoever
    comes next, and the first block would have a graph of its own.
    """
    compiled: Any = torch.compile(block.forward.__func__)
    looks = [m for m in block.modules() if isinstance(m, Attention) and m.blocks is None]
    masks = {(m.spec.causal, m.spec.window, m.spec.cross) for m in looks}
    fixed = any(isinstance(m, BlockSparse) for m in block.modules())  # drawn by application

    def forward(self: Block, x: Any, call: Call, path: str) -> Any:
        for mask in () if isinstance(call.past, Fixed) else masks:
            call.mask(*mask)
        alike = not fixed and call.past is None and call.following is None
        return compiled(self, x, call, "0" if alike else path)

    return forward


def _recomputed(inner: Forward) -> Forward:
    """A block with activations that are computed again, from the call as it was."""

    def forward(self: Block, x: Tensor, call: Call, path: str) -> Tensor:
        if not (self.training and torch.is_grad_enabled()) or call.following is not None:
            return inner(self, x, call, path)
        carried = dict(call.carried)
        first = [True]

        def again(x: Tensor) -> Tensor:
            if first:
                first.clear()
                return inner(self, x, call, path)
            asks = {"weights": None, "hidden": None, "carried": dict(carried)}
            return inner(self, x, replace(call, **asks), path)

        return checkpoint(again, x, use_reentrant=False)

    return forward


def _rounded(inner: Forward) -> Forward:
    """A block that is given its input in bfloat16, so that its sums are; without autocast as it is.

    It stands around what is compiled: the first block's input is rounded before, and there is one
    graph for all.
    """

    def forward(self: Block, x: Any, call: Call, path: str) -> Any:
        first, *said = x if isinstance(x, tuple) else (x,)
        if torch.is_autocast_enabled(first.device.type):
            first = first.to(torch.bfloat16)
        return inner(self, (first, *said) if said else first, call, path)

    return forward
