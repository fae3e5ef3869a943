"""The encoder lineage that BERT began."""

from __future__ import annotations

from anyformer.recipes.registry import register
from anyformer.spec import (
    Activation,
    Attention,
    Detect,
    Embed,
    FeedForward,
    LayerNorm,
    Learned,
    Model,
    Pooler,
    Shared,
    Stack,
    Sublayer,
    Tokens,
)
from anyformer.spec.node import Positive, Rate

NORM = LayerNorm(eps=1e-12)


def _stack(dim: int, depth: int, heads: int, dropout: float, act: Activation = "gelu") -> Stack:
    """Post-norm layers of attention and feed-forward."""
    attention = Attention(heads=heads, dropout=dropout)
    branches = (attention, FeedForward(hidden=4 * dim, act=act))
    block = tuple(Sublayer(branch=b, norm=NORM, place="post", dropout=dropout) for b in branches)
    return Stack(block=block, depth=depth, final_norm=None)


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
    position, source = Learned(length=length), Tokens(vocab=vocab)
    embed = Embed(source=source, position=position, types=2, norm=NORM, dropout=dropout)
    return Model(dim=dim, embed=embed, stack=_stack(dim, depth, heads, dropout), head=Pooler())


@register
def distilbert(
    dim: Positive = 768,
    depth: Positive = 6,
    heads: Positive = 12,
    vocab: Positive = 30522,
    length: Positive = 512,
    dropout: Rate = 0.1,
) -> Model:
    """DistilBERT: BERT at half the depth, without token types and pooler (arXiv:1910.01108)."""
    position, source = Learned(length=length), Tokens(vocab=vocab)
    embed = Embed(source=source, position=position, norm=NORM, dropout=dropout)
    return Model(dim=dim, embed=embed, stack=_stack(dim, depth, heads, dropout))


@register
def albert(
    dim: Positive = 768,
    depth: Positive = 12,
    heads: Positive = 12,
    vocab: Positive = 30000,
    length: Positive = 512,
    width: Positive = 128,
    groups: Positive = 1,
    dropout: Rate = 0.0,
) -> Model:
    """ALBERT: BERT with narrow embeddings and layers that share weights (arXiv:1909.11942)."""
    position, source = Learned(length=length), Tokens(vocab=vocab)
    embed = Embed(source=source, dim=width, position=position, types=2, norm=NORM, dropout=dropout)
    plain = _stack(dim, depth, heads, dropout, act="gelu_tanh")
    stack = Stack(block=plain.block, depth=depth, schedule=Shared(unique=groups), final_norm=None)
    return Model(dim=dim, embed=embed, stack=stack, head=Pooler())


@register
def electra(
    dim: Positive = 256,
    depth: Positive = 12,
    heads: Positive = 4,
    vocab: Positive = 30522,
    length: Positive = 512,
    width: Positive = 128,
    dropout: Rate = 0.1,
) -> Model:
    """ELECTRA: an encoder that tells which tokens were replaced (arXiv:2003.10555)."""
    position, source = Learned(length=length), Tokens(vocab=vocab)
    narrow = None if width == dim else width
    embed = Embed(source=source, dim=narrow, position=position, types=2, norm=NORM, dropout=dropout)
    return Model(dim=dim, embed=embed, stack=_stack(dim, depth, heads, dropout), head=Detect())
