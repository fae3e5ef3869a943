"""Where the first position alone is asked, the last block needs no more than it.

Letters: B rows, N positions, d width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import final

from torch import Tensor, nn

from anyformer import spec as S
from anyformer.model.entered import Stream, whole
from anyformer.model.model import Model
from anyformer.model.stack import Block
from anyformer.parts.state import Call
from anyformer.tasks.base import copied

FREE = ("heads", "kv_heads", "head_dim", "bias", "k_bias", "out_bias", "scale", "dropout")


@final
class First(Block):
    """A block that is asked about the first position; its keys and values are those of all."""

    def forward(self, x: Stream, call: Call, path: str) -> Tensor:
        """x (B, N, d) -> (B, 1, d)."""
        x = whole(x)
        asked = replace(call, length=1, source=x, masks={}, plans={})
        return super().forward(x[:, :1], asked, path)


def narrowed(model: Model) -> Model:
    """A model that gives the first position alone, by less work where its blocks allow that."""
    if not narrows(model.spec):
        return model
    stack, last = model.stack, model.stack.blocks[-1]
    assert isinstance(last, Block)
    blocks = nn.ModuleList([*list(stack.blocks)[:-1], First(*last)])
    return copied(model, stack=copied(stack, blocks=blocks))


def narrows(spec: S.Model) -> bool:
    """Whether the last block sees nothing of a row but keys and values, each block being its own.

    Norms come after the join, so that what keys are made from is what enters the block.
    """
    stack, head = spec.stack, spec.head
    first = head is None or (isinstance(head, S.Classes) and head.pool == "first")
    same = S.Stack(block=stack.block, depth=stack.depth)
    free = ("others", "kinds", "final_norm", "out", "layer_dropout")
    plain = all(vars(stack)[name] == vars(same)[name] for name in vars(same) if name not in free)
    whole = spec.encoder is None and not spec.embed.memory
    blocks = (stack.block, *stack.others)
    return first and plain and whole and all(_plain(sub) for block in blocks for sub in block)


def _plain(sub: S.Sublayer) -> bool:
    """Whether a sublayer is a plain attention or feed-forward with its norm behind the join."""
    if sub.place != "post" or not isinstance(sub.residual, S.Add):
        return False
    if isinstance(sub.branch, S.FeedForward):
        return True
    if not isinstance(sub.branch, S.Attention):
        return False
    own, plain = vars(sub.branch), vars(S.Attention(heads=sub.branch.heads))
    return all(own[name] == plain[name] for name in plain if name not in FREE)
