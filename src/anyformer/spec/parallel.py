"""Branches side by side."""

from __future__ import annotations

from anyformer.spec.attention import Attention
from anyformer.spec.feedforward import FeedForward
from anyformer.spec.node import Custom, Rate, node
from anyformer.spec.norm import Norm

Leaf = Attention | FeedForward | Custom


@node
class Parallel:
    """Branches that read the same input and whose outputs are summed (GPT-J; arXiv:2204.02311)."""

    branches: tuple[Leaf, ...]
    norms: tuple[Norm, ...] = ()  # of each branch's own input; (): none beside the sublayer's
    dropout: Rate = 0.0  # on each branch's output


def recalls(leaf: Leaf) -> bool:
    """Whether a branch reads what a segment memory has."""
    return leaf.recalls if isinstance(leaf, Custom) else kind_of(leaf) == "attention"


def kind_of(leaf: Leaf) -> str:
    """What a branch does: attention, cross, feedforward, or custom."""
    if isinstance(leaf, Custom):
        return "custom"
    if isinstance(leaf, FeedForward):
        return "feedforward"
    return "cross" if leaf.cross else "attention"
