"""Weights as products read them: copies in 16 bits, which an update writes beside the weights.

Under autocast each weight is cast before it is used and its gradient is cast back, a kernel each.
A copy has a gradient of its own, of 16 bits, and the update reads that: same numbers, fewer bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anyformer.model.stack import Block, Stack
from anyformer.parts.attention import Attention
from anyformer.parts.feedforward import FeedForward
from anyformer.parts.twin import bare


class Copy(NamedTuple):
    """The copy of a weight: rows of a tensor that learns, from `first` on."""

    weight: Tensor
    leaf: nn.Parameter
    first: int

    @property
    def data(self) -> Tensor:
        """Its numbers."""
        return self.leaf.detach().narrow(0, self.first, len(self.weight))

    @property
    def grad(self) -> Tensor | None:
        """Its gradient, if there is one."""
        whole = self.leaf.grad
        return None if whole is None else whole.narrow(0, self.first, len(self.weight))


class Low:
    """Copies of the weights of maps that products alone read, once in a pass.

    Where blocks are compiled, those of q, k and v lie side by side, as one product reads them.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype, joined: bool = False):
        self.maps: list[tuple[nn.Linear, Tensor, nn.Parameter]] = []
        self.joins: list[tuple[Attention, nn.Parameter]] = []
        self.copies: dict[int, Copy] = {}  # by the ids of weights
        self.collects = False  # gradients of several passes are summed in the weights' type
        self.seen: list[int] = []
        for owner in _owners(module):
            maps = {m: None for m in owner.children() if isinstance(m, nn.Linear) and _plain(m)}
            together = _together(owner, maps) if joined else ()
            if together:
                assert isinstance(owner, Attention)
                leaf = self._copied([m.weight for m in together], dtype)
                self.joins.append((owner, leaf))
            for map in (m for m in maps if m not in together and id(m.weight) not in self.copies):
                self.maps.append((map, map.weight, self._copied([map.weight], dtype)))

    def _copied(self, weights: list[Tensor], dtype: torch.dtype) -> nn.Parameter:
        """Weights side by side, in a type."""
        leaf, first = nn.Parameter(torch.cat([w.detach().to(dtype) for w in weights])), 0
        for weight in weights:
            self.copies[id(weight)] = Copy(weight, leaf, first)
            first += len(weight)
        return leaf

    def fresh(self) -> None:
        """Copy weights that somebody else than the update has changed."""
        given = list(self.copies.values())
        seen = [copy.weight._version for copy in given]
        if given and (self.collects or seen != self.seen):
            data, weights = [copy.data for copy in given], [copy.weight.detach() for copy in given]
            torch._foreach_copy_(data, weights)  # pyright: ignore[reportPrivateImportUsage]
        self.seen = seen

    @contextmanager
    def read(self) -> Iterator[None]:
        """Within it maps have the copies in place of their weights."""
        for map, _, leaf in self.maps:
            map._parameters["weight"] = leaf
        for attention, leaf in self.joins:
            attention.__dict__["beside"] = leaf  # no parameter of its own
        try:
            yield
        finally:
            for map, weight, _ in self.maps:
                map._parameters["weight"] = weight  # type: ignore[assignment]
            for attention, _ in self.joins:
                attention.__dict__["beside"] = None

    def collect(self) -> None:
        """Add gradients of copies to those of the weights: more of them are to come."""
        self.collects = True
        for copy in self.copies.values():
            if (grad := copy.grad) is not None:
                own, wide = copy.weight.grad, grad.to(copy.weight.dtype)
                copy.weight.grad = wide if own is None else own.add_(wide)
        self.zero()

    def zero(self) -> None:
        """Forget the gradients."""
        for copy in self.copies.values():
            copy.leaf.grad = None


def _together(owner: nn.Module, maps: dict[nn.Linear, None]) -> tuple[nn.Linear, ...]:
    """The maps to q, k and v of an attention that reads one sequence."""
    if not isinstance(owner, Attention) or owner.spec.cross or owner.together is not None:
        return ()
    found = (owner.q, owner.k, owner.v)
    return found if all(map in maps for map in found) else ()


def _owners(module: nn.Module) -> Iterator[nn.Module]:
    """Attentions and feed-forwards in blocks that a pass reads once."""
    for stack in (m for m in module.modules() if isinstance(m, Stack)):
        if stack.spec.reversible or stack.loop is not None:
            continue
        for b in set(stack.schedule):
            block = stack.blocks[b]
            assert isinstance(block, Block)
            lent = any(getattr(sublayer, "lender", ()) for sublayer in block)
            if stack.schedule.count(b) == 1 and not lent:
                yield from (m for m in block.modules() if isinstance(m, Attention | FeedForward))


def _plain(map: nn.Linear) -> bool:
    """Whether a map is its weights, which learn in float32."""
    return bare(map) and map.weight.requires_grad and map.weight.dtype == torch.float32
