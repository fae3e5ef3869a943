"""Encoder-decoders that were pre-trained to restore text, and those that translate."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.registry import Options, edited, register


@register(
    dim=1024, depth=12, heads=16, hidden=None, vocab=50265, length=1024, scaled=False, dropout=0.1
)
def bart(o: Options) -> S.Model:
    """BART: a post-norm encoder-decoder that restores noised text (arXiv:1910.13461).

    The defaults are those of the large one; depth is that of the encoder and of the decoder.
    """
    position = S.Learned(length=o.length, offset=2)
    embed = S.Embed(
        source=S.Tokens(vocab=o.vocab), position=position, norm=S.LayerNorm(), dropout=o.dropout
    )
    embed = S.override(embed, "scale", o.dim**0.5 if o.scaled else 1.0)
    own = S.Attention(heads=o.heads)
    feed = S.FeedForward(hidden=o.hidden)
    writing = (S.override(own, "causal", True), S.override(own, "cross", True), feed)

    def side(*branches: S.Branch) -> S.Model:
        block = tuple(S.Sublayer(branch=b, place="post", dropout=o.dropout) for b in branches)
        stack = S.Stack(block=block, depth=o.depth, final_norm=None)
        return S.Model(dim=o.dim, embed=embed, stack=stack)

    head = S.Vocabulary(tied=True, bias=True)
    both = {"encoder": side(own, feed), "share_tokens": True, "start": 2, "pad": 1, "head": head}
    return edited(side(*writing), both)


@register(
    dim=1024, depth=12, heads=16, hidden=None, vocab=50265, length=1024, scaled=False, dropout=0.1
)
def mbart(o: Options) -> S.Model:
    """mBART: a pre-norm BART of many languages with norms at both ends (arXiv:2001.08210).

    The last label, a language, stands in front of the others as the decoder reads them.
    """
    spec = bart(o)
    for stack in ("stack", "encoder.stack"):
        spec = S.override(spec, f"{stack}.block.*.place", "pre")
        spec = S.override(spec, f"{stack}.final_norm", S.LayerNorm())
    return S.override(S.override(spec, "start", "last"), "pad", 1)


@register(dim=1024, depth=12, heads=16, hidden=None, vocab=128112, scaled=True, pad=1, dropout=0.1)
def m2m_100(o: Options) -> S.Model:
    """M2M-100: a pre-norm translator with fixed positions that leave padding out (2010.11125)."""
    spec = bart(o.but(length=1))
    position = S.Sinusoidal(closed=True, offset=o.pad + 1, skip=o.pad)
    for side in ("", "encoder."):
        spec = S.override(spec, f"{side}embed.position", position)
        spec = S.override(spec, f"{side}embed.norm", None)
        spec = S.override(spec, f"{side}stack.block.*.place", "pre")
        spec = S.override(spec, f"{side}stack.block.*.branch.act", "relu")
        spec = S.override(spec, f"{side}stack.final_norm", S.LayerNorm())
    return S.override(S.override(spec, "head", S.Vocabulary(tied=True)), "pad", o.pad)
