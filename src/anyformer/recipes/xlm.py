"""XLM: one encoder for many languages."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.bert import distilbert
from anyformer.recipes.registry import Options, edited, register


@register(dim=2048, depth=12, heads=16, vocab=30145, length=512, langs=0, causal=False, dropout=0.1)
def xlm(o: Options) -> S.Model:
    """XLM: a post-norm encoder with a vector for each language (arXiv:1901.07291)."""
    changes = {
        "embed.langs": o.langs,
        "stack.blank": True,
        "stack.block.0.branch.causal": o.causal,
        "head": S.Vocabulary(tied=True, bias=True, shift=False),
    }
    return edited(distilbert(o), changes)
