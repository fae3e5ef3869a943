"""The encoder-decoder lineage that T5 began."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.registry import Options, edited, register


@register(dim=512, depth=6, heads=8, head_dim=None, hidden=None, vocab=32128, dropout=0.1)
def t5(o: Options) -> S.Model:
    """T5: an encoder-decoder with bucketed relative positions and no biases (arXiv:1910.10683).

    The defaults are those of the small one; depth is that of the encoder and of the decoder.
    """
    norm = S.RMSNorm(eps=1e-6)
    own = S.Attention(heads=o.heads, head_dim=o.head_dim, bias=False, scale=1.0, dropout=o.dropout)
    feed = S.FeedForward(hidden=o.hidden, act="relu", bias=False, dropout=o.dropout)
    writing = (S.override(own, "causal", True), S.override(own, "cross", True), feed)
    embed = S.Embed(source=S.Tokens(vocab=o.vocab), dropout=o.dropout)

    def stack(*branches: S.Branch, bidirectional: bool) -> S.Stack:
        block = tuple(S.Sublayer(branch=b, norm=norm, dropout=o.dropout) for b in branches)
        relative = (S.Buckets(bidirectional=bidirectional),)
        return S.Stack(block=block, depth=o.depth, final_norm=norm, relative=relative)

    common = {"dim": o.dim, "embed": embed, "init": S.Init(std=1.0, fan=True)}
    encoder = S.Model(stack=stack(own, feed, bidirectional=True), **common)
    head = S.Vocabulary(tied=True, scale=o.dim**-0.5)
    both = {"encoder": encoder, "share_tokens": True, "start": 0, "pad": 0}
    return edited(S.Model(stack=stack(*writing, bidirectional=False), head=head, **common), both)


@register(dim=512, depth=8, heads=6, head_dim=64, hidden=1024, vocab=32128, dropout=0.0)
def t5_1_1(o: Options) -> S.Model:
    """T5 1.1: gated feed-forwards and a head of its own (arXiv:2002.05202); mT5 (2010.11934)."""
    spec = t5(o)
    for feed in ("stack.block.2.branch", "encoder.stack.block.1.branch"):
        spec = S.override(S.override(spec, f"{feed}.gated", True), f"{feed}.act", "gelu_tanh")
    return S.override(spec, "head", S.Vocabulary(tied=False))
