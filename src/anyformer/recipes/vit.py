"""Transformers that read images."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.registry import Options, register


@register(dim=768, depth=12, heads=12, image=224, patch=16, classes=1000, dropout=0.0)
def vit(o: Options) -> S.Model:
    """ViT: a pre-norm encoder of image patches with a class token (arXiv:2010.11929)."""
    norm = S.LayerNorm(eps=1e-6)
    branches = (S.Attention(heads=o.heads, out_bias=True), S.FeedForward(dropout=o.dropout))
    block = tuple(S.Sublayer(branch=b, norm=norm, dropout=o.dropout) for b in branches)
    position = S.Learned(length=(o.image // o.patch) ** 2 + 1)
    embed = S.Embed(
        source=S.Patches(image=o.image, patch=o.patch), position=position, dropout=o.dropout
    )
    stack = S.Stack(block=block, depth=o.depth, final_norm=norm)
    return S.Model(dim=o.dim, embed=embed, stack=stack, head=S.Classes(count=o.classes))
