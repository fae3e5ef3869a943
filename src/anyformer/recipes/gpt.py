"""The decoder lineage that GPT began."""

from __future__ import annotations

from anyformer.recipes.registry import register
from anyformer.spec import (
    Attention,
    Embed,
    FeedForward,
    Init,
    LayerNorm,
    Learned,
    Model,
    Stack,
    Sublayer,
    Tokens,
    Vocabulary,
)
from anyformer.spec.node import Positive, Rate


@register
def gpt2(
    dim: Positive = 768,
    depth: Positive = 12,
    heads: Positive = 12,
    vocab: Positive = 50257,
    length: Positive = 1024,
    dropout: Rate = 0.1,
) -> Model:
    """GPT-2: a pre-norm decoder with a tied head (Radford et al., 2019)."""
    norm = LayerNorm(eps=1e-5)
    attention = Attention(heads=heads, causal=True, dropout=dropout)
    branches = (attention, FeedForward(act="gelu_tanh"))
    block = tuple(Sublayer(branch=b, norm=norm, dropout=dropout) for b in branches)
    embed = Embed(source=Tokens(vocab=vocab), position=Learned(length=length), dropout=dropout)
    stack = Stack(block=block, depth=depth, final_norm=norm)
    init = Init(std=0.02, depth_scaled=True)
    return Model(dim=dim, embed=embed, stack=stack, head=Vocabulary(tied=True), init=init)
