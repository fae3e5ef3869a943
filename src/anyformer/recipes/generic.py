"""Plain models to start from: pre-norm, learned positions, tied head, no dropout."""

from __future__ import annotations

from anyformer.recipes.registry import register
from anyformer.spec import (
    Attention,
    Branch,
    Embed,
    FeedForward,
    Learned,
    Model,
    Stack,
    Sublayer,
    Tokens,
    Vocabulary,
)
from anyformer.spec.node import Positive


def _stack(depth: int, *attentions: Attention) -> Stack:
    branches: tuple[Branch, ...] = (*attentions, FeedForward())
    return Stack(block=tuple(Sublayer(branch=b) for b in branches), depth=depth)


def _embed(vocab: int, length: int) -> Embed:
    return Embed(source=Tokens(vocab=vocab), position=Learned(length=length))


@register
def encoder(
    dim: Positive = 512,
    depth: Positive = 6,
    heads: Positive = 8,
    vocab: Positive = 32000,
    length: Positive = 512,
) -> Model:
    """A plain pre-norm encoder that predicts tokens (after arXiv:1706.03762)."""
    stack = _stack(depth, Attention(heads=heads))
    return Model(dim=dim, embed=_embed(vocab, length), stack=stack, head=Vocabulary())


@register
def decoder(
    dim: Positive = 512,
    depth: Positive = 6,
    heads: Positive = 8,
    vocab: Positive = 32000,
    length: Positive = 512,
) -> Model:
    """A plain pre-norm decoder that predicts the next token (after arXiv:1706.03762)."""
    stack = _stack(depth, Attention(heads=heads, causal=True))
    return Model(dim=dim, embed=_embed(vocab, length), stack=stack, head=Vocabulary())


@register
def encoder_decoder(
    dim: Positive = 512,
    depth: Positive = 6,
    heads: Positive = 8,
    vocab: Positive = 32000,
    length: Positive = 512,
) -> Model:
    """A plain pre-norm encoder-decoder with one token table (after arXiv:1706.03762)."""
    embed = _embed(vocab, length)
    stack = _stack(depth, Attention(heads=heads, causal=True), Attention(heads=heads, cross=True))
    reader = Model(dim=dim, embed=embed, stack=_stack(depth, Attention(heads=heads)))
    return Model(
        dim=dim, embed=embed, stack=stack, head=Vocabulary(), encoder=reader, share_tokens=True
    )
