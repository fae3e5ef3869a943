"""RoBERTa and its kin: BERT's encoder with positions that leave padding out."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.bert import bert
from anyformer.recipes.registry import Options, register


@register(dim=768, depth=12, heads=12, vocab=50265, length=512, pad=1, dropout=0.1)
def roberta(o: Options) -> S.Model:
    """RoBERTa: BERT with positions that leave padding out, one token type (arXiv:1907.11692)."""
    model = bert(o)
    position = S.Learned(length=o.length, offset=o.pad + 1, skip=o.pad)
    for path in ("embed.norm", "stack.block.*.norm"):
        model = S.override(model, path, S.LayerNorm(eps=1e-5))
    return S.override(S.override(model, "embed.position", position), "embed.types", 1)


@register(dim=768, depth=12, heads=12, vocab=250002, length=512, pad=1, dropout=0.1)
def xlm_roberta(o: Options) -> S.Model:
    """XLM-RoBERTa: RoBERTa over a vocabulary of a hundred languages (arXiv:1911.02116)."""
    return roberta(o)


@register(dim=768, depth=12, heads=12, vocab=50265, length=512, pad=1, dropout=0.1)
def roberta_prelayernorm(o: Options) -> S.Model:
    """RoBERTa-PreLayerNorm: RoBERTa with norms before each sublayer (arXiv:1904.01038)."""
    model = roberta(o)
    model = S.override(model, "stack.block.*.place", "pre")
    return S.override(model, "stack.final_norm", S.LayerNorm(eps=1e-5))
