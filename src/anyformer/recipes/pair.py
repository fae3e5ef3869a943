"""Two models joined: one reads, the other writes and looks at what the first has read."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.bert import bert
from anyformer.recipes.registry import Options, register


def joined(encoder: S.Model, decoder: S.Model) -> S.Model:
    """A decoder that looks back alone and has a cross-attention after each self-attention."""
    own, *rest = decoder.stack.block
    own = S.override(own, "branch.causal", True)
    cross = S.override(S.override(own, "branch.causal", False), "branch.cross", True)
    writes = S.override(decoder, "stack.block", (own, cross, *rest))
    return S.override(writes, "encoder", encoder)


@register(dim=768, depth=12, heads=12, vocab=30522, length=512, dropout=0.1)
def bert2bert(o: Options) -> S.Model:
    """BERT2BERT: two BERTs, one of which writes with cross-attention (arXiv:1907.12461)."""
    one = S.override(bert(o), "head", None)
    head = S.Vocabulary(tied=True, bias=True, dense=True, norm=S.LayerNorm(eps=1e-12))
    return joined(one, S.override(one, "head", head))
