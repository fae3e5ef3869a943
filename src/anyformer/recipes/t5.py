"""The encoder-decoder lineage that T5 began."""

from __future__ import annotations

from anyformer.recipes.registry import register
from anyformer.spec import (
    Attention,
    Branch,
    Buckets,
    Embed,
    FeedForward,
    Model,
    RMSNorm,
    Stack,
    Sublayer,
    Tokens,
    Vocabulary,
    override,
)
from anyformer.spec.node import Positive, Rate


@register
def t5(
    dim: Positive = 512,
    depth: Positive = 6,
    heads: Positive = 8,
    head_dim: Positive | None = None,
    hidden: Positive | None = None,
    vocab: Positive = 32128,
    dropout: Rate = 0.1,
) -> Model:
    """T5: an encoder-decoder with bucketed relative positions and no biases (arXiv:1910.10683).

    The defaults are those of the small one; depth is that of the encoder and of the decoder.
    """
    norm = RMSNorm(eps=1e-6)
    own = Attention(heads=heads, head_dim=head_dim, bias=False, scale=1.0, dropout=dropout)
    feed = FeedForward(hidden=hidden, act="relu", bias=False, dropout=dropout)
    writing = (override(own, "causal", True), override(own, "cross", True), feed)
    embed = Embed(source=Tokens(vocab=vocab), dropout=dropout)

    def stack(*branches: Branch, bidirectional: bool) -> Stack:
        block = tuple(Sublayer(branch=b, norm=norm, dropout=dropout) for b in branches)
        relative = (Buckets(bidirectional=bidirectional),)
        return Stack(block=block, depth=depth, final_norm=norm, relative=relative)

    encoder = Model(dim=dim, embed=embed, stack=stack(own, feed, bidirectional=True))
    decoder = stack(*writing, bidirectional=False)
    head = Vocabulary(tied=True, scale=dim**-0.5)
    return Model(dim=dim, embed=embed, stack=decoder, head=head, encoder=encoder, share_tokens=True)


@register
def t5_1_1(
    dim: Positive = 512,
    depth: Positive = 8,
    heads: Positive = 6,
    head_dim: Positive = 64,
    hidden: Positive = 1024,
    vocab: Positive = 32128,
    dropout: Rate = 0.0,
) -> Model:
    """T5 1.1: gated feed-forwards and a head of its own (arXiv:2002.05202); mT5 (2010.11934)."""
    spec = t5(dim, depth, heads, head_dim, hidden, vocab, dropout)
    for feed in ("stack.block.2.branch", "encoder.stack.block.1.branch"):
        spec = override(override(spec, f"{feed}.gated", True), f"{feed}.act", "gelu_tanh")
    return override(spec, "head", Vocabulary(tied=False))
