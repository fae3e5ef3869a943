"""Decoders whose attention and feed-forward run side by side."""

from __future__ import annotations

from anyformer.recipes.registry import register
from anyformer.spec import (
    Attention,
    Embed,
    FeedForward,
    LayerNorm,
    Model,
    Parallel,
    Rotary,
    Stack,
    Sublayer,
    Tokens,
    Vocabulary,
)
from anyformer.spec.node import Above, Positive, Rate


@register
def gpt_j(
    dim: Positive = 4096,
    depth: Positive = 28,
    heads: Positive = 16,
    rotary_dim: Positive = 64,
    vocab: Positive = 50400,
    dropout: Rate = 0.0,
) -> Model:
    """GPT-J: attention and feed-forward side by side behind one norm (Wang and others, 2021)."""
    norm, rotary = LayerNorm(eps=1e-5), Rotary(dims=rotary_dim, layout="pairs")
    attention = Attention(heads=heads, bias=False, causal=True, rotary=rotary, dropout=dropout)
    feed = FeedForward(hidden=4 * dim, act="gelu_tanh")
    branch = Parallel(branches=(attention, feed), dropout=dropout)
    stack = Stack(block=(Sublayer(branch=branch, norm=norm),), depth=depth, final_norm=norm)
    embed = Embed(source=Tokens(vocab=vocab), dropout=dropout)
    return Model(dim=dim, embed=embed, stack=stack, head=Vocabulary(tied=False, bias=True))


@register
def gpt_neox(
    dim: Positive = 6144,
    depth: Positive = 44,
    heads: Positive = 64,
    hidden: Positive = 24576,
    vocab: Positive = 50432,
    rotary: Above = 0.25,
    dropout: Rate = 0.0,
) -> Model:
    """GPT-NeoX: attention and feed-forward side by side, with a norm each (arXiv:2204.06745)."""
    norm, turned = LayerNorm(eps=1e-5), Rotary(dims=int(dim // heads * rotary))
    attention = Attention(heads=heads, causal=True, rotary=turned, dropout=dropout)
    branches = (attention, FeedForward(hidden=hidden, act="gelu"))
    branch = Parallel(branches=branches, norms=(norm, norm), dropout=dropout)
    stack = Stack(block=(Sublayer(branch=branch, norm=None),), depth=depth, final_norm=norm)
    embed = Embed(source=Tokens(vocab=vocab), dropout=dropout)
    return Model(dim=dim, embed=embed, stack=stack, head=Vocabulary(tied=False))
