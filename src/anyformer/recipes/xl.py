"""Decoders that remember earlier segments."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.registry import Options, register


@register(
    dim=512,
    depth=12,
    heads=8,
    hidden=2048,
    vocab=204,
    memory=512,
    head_dim=None,
    dropout=0.1,
    table=None,
    shared=False,
)
def transformer_xl(o: Options) -> S.Model:
    """Transformer-XL: a post-norm decoder with a memory of earlier segments (arXiv:1901.02860).

    The defaults are those of the 12-layer model of characters (enwik8). With `table`, so many
    distances are learned in place of sinusoids; with `shared`, one u and v serve all layers, as in
    the authors' PyTorch code. For words, give rarer ones narrower vectors: `embed.source` with
    cutoffs, and an Adaptive head with the same.
    """
    sizes = {"heads": o.heads, "head_dim": o.head_dim}
    place = S.XLTable(back=o.table) if o.table else S.XL(biases=not o.shared)
    attention = S.Attention(bias=False, causal=True, relative=(place,), dropout=o.dropout, **sizes)
    branches = (attention, S.FeedForward(hidden=o.hidden, act="relu", dropout=o.dropout))
    block = tuple(S.Sublayer(branch=b, place="post", dropout=o.dropout) for b in branches)
    embed = S.Embed(source=S.Tokens(vocab=o.vocab), scale=o.dim**0.5, dropout=o.dropout)
    both = (S.XLBiases(),) if o.shared else ()
    stack = S.Stack(block=block, depth=o.depth, final_norm=None, recurrence=o.memory, relative=both)
    return S.Model(dim=o.dim, embed=embed, stack=stack, head=S.Vocabulary(tied=True, bias=True))
