"""Encoders of long rows whose attention is sparse by blocks."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.bart import bart
from anyformer.recipes.bert import bert
from anyformer.recipes.registry import Options, register


@register(dim=768, depth=12, heads=12, vocab=50358, length=4096, size=64, scaled=False, dropout=0.1)
def big_bird(o: Options) -> S.Model:
    """BigBird: BERT over long rows, sparse by blocks of `size` positions (arXiv:2007.14062)."""
    spec = bert(o)
    spec = S.override(spec, "embed.scale", o.dim**0.5 if o.scaled else 1.0)
    spec = S.override(spec, "stack.block.1.branch.act", "gelu_tanh")
    spec = S.override(spec, "stack.block.0.branch.out_bias", True)
    return S.override(
        spec, "stack.block.0.branch.blocks", S.BlockSparse(size=o.size, longest=o.length)
    )


@register(dim=1024, depth=16, heads=16, vocab=96103, length=4096, size=64, scaled=True, dropout=0.1)
def bigbird_pegasus(o: Options) -> S.Model:
    """BigBird-Pegasus: a pre-norm summariser whose encoder is sparse by blocks (2007.14062)."""
    spec = bart(o.but(hidden=None))
    for side, attentions in (("", (0, 1)), ("encoder.", (0,))):
        spec = S.override(spec, f"{side}embed.position", S.Learned(length=o.length))
        spec = S.override(spec, f"{side}embed.norm", None)
        spec = S.override(spec, f"{side}stack.final_norm", S.LayerNorm())
        spec = S.override(spec, f"{side}stack.block.*.place", "pre")
        spec = S.override(spec, f"{side}stack.block.{len(attentions)}.branch.act", "gelu_tanh")
        for i in attentions:
            spec = S.override(spec, f"{side}stack.block.{i}.branch.bias", False)
    blocks = S.BlockSparse(size=o.size, longest=o.length)
    return S.override(S.override(spec, "encoder.stack.block.0.branch.blocks", blocks), "pad", 0)
