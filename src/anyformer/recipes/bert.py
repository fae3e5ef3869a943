"""The encoder lineage that BERT began."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.registry import Options, register

NORM = S.LayerNorm(eps=1e-12)


def _stack(dim: int, depth: int, heads: int, dropout: float, act: S.Activation = "gelu") -> S.Stack:
    """Post-norm layers of attention and feed-forward."""
    attention = S.Attention(heads=heads, dropout=dropout)
    branches = (attention, S.FeedForward(hidden=4 * dim, act=act))
    block = tuple(S.Sublayer(branch=b, norm=NORM, place="post", dropout=dropout) for b in branches)
    return S.Stack(block=block, depth=depth, final_norm=None)


@register(dim=768, depth=12, heads=12, vocab=30522, length=512, dropout=0.1)
def bert(o: Options) -> S.Model:
    """BERT: a post-norm encoder with token types and a pooler (arXiv:1810.04805)."""
    position, source = S.Learned(length=o.length), S.Tokens(vocab=o.vocab)
    embed = S.Embed(source=source, position=position, types=2, norm=NORM, dropout=o.dropout)
    return S.Model(
        dim=o.dim, embed=embed, stack=_stack(o.dim, o.depth, o.heads, o.dropout), head=S.Pooler()
    )


@register(dim=768, depth=6, heads=12, vocab=30522, length=512, dropout=0.1)
def distilbert(o: Options) -> S.Model:
    """DistilBERT: BERT at half the depth, without token types and pooler (arXiv:1910.01108)."""
    position, source = S.Learned(length=o.length), S.Tokens(vocab=o.vocab)
    embed = S.Embed(source=source, position=position, norm=NORM, dropout=o.dropout)
    return S.Model(dim=o.dim, embed=embed, stack=_stack(o.dim, o.depth, o.heads, o.dropout))


@register(dim=768, depth=12, heads=12, vocab=30000, length=512, width=128, groups=1, dropout=0.0)
def albert(o: Options) -> S.Model:
    """ALBERT: BERT with narrow embeddings and layers that share weights (arXiv:1909.11942)."""
    position, source = S.Learned(length=o.length), S.Tokens(vocab=o.vocab)
    embed = S.Embed(
        source=source, dim=o.width, position=position, types=2, norm=NORM, dropout=o.dropout
    )
    plain = _stack(o.dim, o.depth, o.heads, o.dropout, act="gelu_tanh")
    stack = S.Stack(
        block=plain.block, depth=o.depth, schedule=S.Shared(unique=o.groups), final_norm=None
    )
    return S.Model(dim=o.dim, embed=embed, stack=stack, head=S.Pooler())


@register(dim=256, depth=12, heads=4, vocab=30522, length=512, width=128, dropout=0.1)
def electra(o: Options) -> S.Model:
    """ELECTRA: an encoder that tells which tokens were replaced (arXiv:2003.10555)."""
    position, source = S.Learned(length=o.length), S.Tokens(vocab=o.vocab)
    narrow = None if o.width == o.dim else o.width
    embed = S.Embed(
        source=source, dim=narrow, position=position, types=2, norm=NORM, dropout=o.dropout
    )
    return S.Model(
        dim=o.dim, embed=embed, stack=_stack(o.dim, o.depth, o.heads, o.dropout), head=S.Detect()
    )
