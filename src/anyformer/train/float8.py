"""Wide maps whose products run in float8 while a model is trained.

Only the `forward` of such a map is replaced, so names and weights stay what they are; a model that
is evaluated, that writes or that was saved has plain maps.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType

import torch.nn.functional as F
from torch import Tensor, nn

from anyformer.errors import SpecError
from anyformer.model.stack import Block, Sublayer
from anyformer.ops import float8
from anyformer.parts.attention import Attention
from anyformer.parts.feedforward import FeedForward

# Inputs and outputs that a map has at least. M rows by a map of d times d are 6 M d² operations, of
# which float8 saves 47 % at 1.9 times the rate, and its casts move 11 M d bytes: at 790 TFLOP/s and
# 4 TB/s both are even at d = 760. Twice that leaves half of what is saved.
WIDE = 1536


def narrow(module: nn.Module) -> int:
    """Let the wide maps inside a module's blocks run in float8; how many there are."""
    wrong = float8.fault(next(module.parameters()).device)
    if wrong is not None:
        raise SpecError(f"float8=True: {wrong}. Leave it out, or take another device")
    found = {map for block in module.modules() if isinstance(block, Block) for map in _maps(block)}
    wide = [map for map in found if _is_wide(map)]
    if not wide:
        widest = max((min(m.in_features, m.out_features) for m in found), default=0)
        raise SpecError(
            f"float8=True is for maps of {WIDE} or more inputs and outputs, multiples of "
            f"{float8.EVEN}, and the widest of the blocks' has {widest}: leave it out, or take a "
            "wider model"
        )
    for map in wide:
        map.forward = MethodType(_forward, map)  # bound, so that a copy of the map has its own
    return len(wide)


def _maps(block: Block) -> Iterator[nn.Linear]:
    """The maps of a block's attentions and feed-forwards, and those that replace shared ones."""
    for owner in block.modules():
        if isinstance(owner, Attention | FeedForward):
            yield from _plain(owner)
        elif isinstance(owner, Sublayer) and owner.maps is not None:
            yield from _plain(owner.maps)


def _plain(owner: nn.Module) -> Iterator[nn.Linear]:
    """A module's own linear maps; ones that somebody wrapped are left alone."""
    return (child for child in owner.children() if type(child) is nn.Linear)


def _is_wide(map: nn.Linear) -> bool:
    return min(map.in_features, map.out_features) >= WIDE and float8.takes(map.weight)


def _forward(self: nn.Linear, x: Tensor) -> Tensor:
    """The map in float8 while it is trained, as it is else."""
    if not self.training:
        return F.linear(x, self.weight, self.bias)
    return float8.linear(x, self.weight, self.bias)
