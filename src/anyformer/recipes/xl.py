"""Decoders that remember earlier segments."""

from __future__ import annotations

from anyformer.recipes.registry import register
from anyformer.spec import (
    XL,
    Attention,
    Embed,
    FeedForward,
    Model,
    Stack,
    Sublayer,
    Tokens,
    Vocabulary,
)
from anyformer.spec.node import Natural, Positive, Rate


@register
def transformer_xl(
    dim: Positive = 512,
    depth: Positive = 12,
    heads: Positive = 8,
    hidden: Positive = 2048,
    vocab: Positive = 204,
    memory: Natural = 512,
    dropout: Rate = 0.1,
) -> Model:
    """Transformer-XL: a post-norm decoder with a memory of earlier segments (arXiv:1901.02860).

    The defaults are those of the 12-layer model of characters (enwik8).
    """
    attention = Attention(heads=heads, bias=False, causal=True, relative=(XL(),), dropout=dropout)
    branches = (attention, FeedForward(hidden=hidden, act="relu", dropout=dropout))
    block = tuple(Sublayer(branch=b, place="post", dropout=dropout) for b in branches)
    embed = Embed(source=Tokens(vocab=vocab), scale=dim**0.5, dropout=dropout)
    stack = Stack(block=block, depth=depth, final_norm=None, recurrence=memory)
    return Model(dim=dim, embed=embed, stack=stack, head=Vocabulary(tied=True, bias=True))
