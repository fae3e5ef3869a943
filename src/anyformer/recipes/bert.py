"""The encoder lineage that BERT began."""

from __future__ import annotations

from anyformer.recipes.registry import register
from anyformer.spec import (
    Attention,
    Embed,
    FeedForward,
    LayerNorm,
    Learned,
    Model,
    Pooler,
    Stack,
    Sublayer,
    Tokens,
)
from anyformer.spec.node import Positive, Rate


@register
def bert(
    dim: Positive = 768,
    depth: Positive = 12,
    heads: Positive = 12,
    vocab: Positive = 30522,
    length: Positive = 512,
    dropout: Rate = 0.1,
) -> Model:
    """BERT: a post-norm encoder with token types and a pooler (arXiv:1810.04805)."""
    norm = LayerNorm(eps=1e-12)
    branches = (Attention(heads=heads, dropout=dropout), FeedForward())
    block = tuple(Sublayer(branch=b, norm=norm, place="post", dropout=dropout) for b in branches)
    position = Learned(length=length)
    source = Tokens(vocab=vocab)
    embed = Embed(source=source, position=position, types=2, norm=norm, dropout=dropout)
    stack = Stack(block=block, depth=depth, final_norm=None)
    return Model(dim=dim, embed=embed, stack=stack, head=Pooler())
