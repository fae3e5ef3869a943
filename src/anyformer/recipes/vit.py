"""Transformers that read images."""

from __future__ import annotations

from anyformer.recipes.registry import register
from anyformer.spec import (
    Attention,
    Classes,
    Embed,
    FeedForward,
    LayerNorm,
    Learned,
    Model,
    Patches,
    Stack,
    Sublayer,
)
from anyformer.spec.node import Positive, Rate


@register
def vit(
    dim: Positive = 768,
    depth: Positive = 12,
    heads: Positive = 12,
    image: Positive = 224,
    patch: Positive = 16,
    classes: Positive = 1000,
    dropout: Rate = 0.0,
) -> Model:
    """ViT: a pre-norm encoder of image patches with a class token (arXiv:2010.11929)."""
    norm = LayerNorm(eps=1e-6)
    branches = (Attention(heads=heads, out_bias=True), FeedForward(dropout=dropout))
    block = tuple(Sublayer(branch=b, norm=norm, dropout=dropout) for b in branches)
    position = Learned(length=(image // patch) ** 2 + 1)
    embed = Embed(source=Patches(image=image, patch=patch), position=position, dropout=dropout)
    stack = Stack(block=block, depth=depth, final_norm=norm)
    return Model(dim=dim, embed=embed, stack=stack, head=Classes(count=classes))
