"""Encoder-decoders that were pre-trained to restore text, and those that translate."""

from __future__ import annotations

from anyformer.recipes.registry import register
from anyformer.spec import (
    Attention,
    Branch,
    Embed,
    FeedForward,
    LayerNorm,
    Learned,
    Model,
    Sinusoidal,
    Stack,
    Sublayer,
    Tokens,
    Vocabulary,
    override,
)
from anyformer.spec.node import Natural, Positive, Rate


@register
def bart(
    dim: Positive = 1024,
    depth: Positive = 12,
    heads: Positive = 16,
    hidden: Positive | None = None,
    vocab: Positive = 50265,
    length: Positive = 1024,
    scaled: bool = False,
    dropout: Rate = 0.1,
) -> Model:
    """BART: a post-norm encoder-decoder that restores noised text (arXiv:1910.13461).

    The defaults are those of the large one; depth is that of the encoder and of the decoder.
    """
    position = Learned(length=length, offset=2)
    embed = Embed(source=Tokens(vocab=vocab), position=position, norm=LayerNorm(), dropout=dropout)
    embed = override(embed, "scale", dim**0.5 if scaled else 1.0)
    own = Attention(heads=heads)
    feed = FeedForward(hidden=hidden)
    writing = (override(own, "causal", True), override(own, "cross", True), feed)

    def side(*branches: Branch) -> Model:
        block = tuple(Sublayer(branch=b, place="post", dropout=dropout) for b in branches)
        return Model(dim=dim, embed=embed, stack=Stack(block=block, depth=depth, final_norm=None))

    joined = override(override(side(*writing), "encoder", side(own, feed)), "share_tokens", True)
    return override(joined, "head", Vocabulary(tied=True, bias=True))


@register
def mbart(
    dim: Positive = 1024,
    depth: Positive = 12,
    heads: Positive = 16,
    hidden: Positive | None = None,
    vocab: Positive = 50265,
    length: Positive = 1024,
    scaled: bool = False,
    dropout: Rate = 0.1,
) -> Model:
    """mBART: a pre-norm BART of many languages with norms at both ends (arXiv:2001.08210).

    The last label, a language, stands in front of the others as the decoder reads them.
    """
    spec = bart(dim, depth, heads, hidden, vocab, length, scaled, dropout)
    for stack in ("stack", "encoder.stack"):
        spec = override(spec, f"{stack}.block.*.place", "pre")
        spec = override(spec, f"{stack}.final_norm", LayerNorm())
    return override(override(spec, "start", "last"), "pad", 1)


@register
def m2m_100(
    dim: Positive = 1024,
    depth: Positive = 12,
    heads: Positive = 16,
    hidden: Positive | None = None,
    vocab: Positive = 128112,
    scaled: bool = True,
    pad: Natural = 1,
    dropout: Rate = 0.1,
) -> Model:
    """M2M-100: a pre-norm translator with fixed positions that leave padding out (2010.11125)."""
    spec = bart(dim, depth, heads, hidden, vocab, 1, scaled, dropout)
    position = Sinusoidal(closed=True, offset=pad + 1, skip=pad)
    for side in ("", "encoder."):
        spec = override(spec, f"{side}embed.position", position)
        spec = override(spec, f"{side}embed.norm", None)
        spec = override(spec, f"{side}stack.block.*.place", "pre")
        spec = override(spec, f"{side}stack.block.*.branch.act", "relu")
        spec = override(spec, f"{side}stack.final_norm", LayerNorm())
    return override(override(spec, "head", Vocabulary(tied=True)), "pad", pad)
