"""Branches side by side."""

from __future__ import annotations

from anyformer.spec.attention import Attention
from anyformer.spec.feedforward import FeedForward
from anyformer.spec.node import Rate, node
from anyformer.spec.norm import Norm

Leaf = Attention | FeedForward


@node
class Parallel:
    """Branches that read the same input and whose outputs are summed (GPT-J; arXiv:2204.02311)."""

    branches: tuple[Leaf, ...]
    norms: tuple[Norm, ...] = ()  # of each branch's own input; (): none beside the sublayer's
    dropout: Rate = 0.0  # on each branch's output


def kind_of(leaf: Leaf) -> str:
    """What a branch does: attention, cross or feedforward."""
    if isinstance(leaf, FeedForward):
        return "feedforward"
    return "cross" if leaf.cross else "attention"
