"""RoBERTa and its kin: BERT's encoder with positions that leave padding out."""

from __future__ import annotations

from anyformer.recipes.bert import bert
from anyformer.recipes.registry import register
from anyformer.spec import LayerNorm, Learned, Model, override
from anyformer.spec.node import Natural, Positive, Rate


@register
def roberta(
    dim: Positive = 768,
    depth: Positive = 12,
    heads: Positive = 12,
    vocab: Positive = 50265,
    length: Positive = 512,
    pad: Natural = 1,
    dropout: Rate = 0.1,
) -> Model:
    """RoBERTa: BERT with positions that leave padding out, one token type (arXiv:1907.11692)."""
    model = bert(dim, depth, heads, vocab, length, dropout)
    position = Learned(length=length, offset=pad + 1, skip=pad)
    for path in ("embed.norm", "stack.block.*.norm"):
        model = override(model, path, LayerNorm(eps=1e-5))
    return override(override(model, "embed.position", position), "embed.types", 1)


@register
def xlm_roberta(
    dim: Positive = 768,
    depth: Positive = 12,
    heads: Positive = 12,
    vocab: Positive = 250002,
    length: Positive = 512,
    pad: Natural = 1,
    dropout: Rate = 0.1,
) -> Model:
    """XLM-RoBERTa: RoBERTa over a vocabulary of a hundred languages (arXiv:1911.02116)."""
    return roberta(dim, depth, heads, vocab, length, pad, dropout)


@register
def roberta_prelayernorm(
    dim: Positive = 768,
    depth: Positive = 12,
    heads: Positive = 12,
    vocab: Positive = 50265,
    length: Positive = 512,
    pad: Natural = 1,
    dropout: Rate = 0.1,
) -> Model:
    """RoBERTa-PreLayerNorm: RoBERTa with norms before each sublayer (arXiv:1904.01038)."""
    model = roberta(dim, depth, heads, vocab, length, pad, dropout)
    model = override(model, "stack.block.*.place", "pre")
    return override(model, "stack.final_norm", LayerNorm(eps=1e-5))
