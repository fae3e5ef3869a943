"""Two models joined: one reads, the other writes and looks at what the first has read."""

from __future__ import annotations

from anyformer.recipes.bert import bert
from anyformer.recipes.registry import register
from anyformer.spec import LayerNorm, Model, Vocabulary, override
from anyformer.spec.node import Positive, Rate


def joined(encoder: Model, decoder: Model) -> Model:
    """A decoder that looks back alone and has a cross-attention after each self-attention."""
    own, *rest = decoder.stack.block
    own = override(own, "branch.causal", True)
    cross = override(override(own, "branch.causal", False), "branch.cross", True)
    writes = override(decoder, "stack.block", (own, cross, *rest))
    return override(writes, "encoder", encoder)


@register
def bert2bert(
    dim: Positive = 768,
    depth: Positive = 12,
    heads: Positive = 12,
    vocab: Positive = 30522,
    length: Positive = 512,
    dropout: Rate = 0.1,
) -> Model:
    """BERT2BERT: two BERTs, one of which writes with cross-attention (arXiv:1907.12461)."""
    one = override(bert(dim, depth, heads, vocab, length, dropout=dropout), "head", None)
    head = Vocabulary(tied=True, bias=True, dense=True, norm=LayerNorm(eps=1e-12))
    return joined(one, override(one, "head", head))
