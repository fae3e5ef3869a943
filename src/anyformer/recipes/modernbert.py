"""ModernBERT: BERT's encoder with what decoders have learnt since."""

from __future__ import annotations

from collections.abc import Iterable

from anyformer import spec as S
from anyformer.recipes.registry import Options, register
from anyformer.recipes.windows import layered, turning, windowed


def alternating(spec: S.Model, windows: Iterable[int | None]) -> S.Model:
    """The model with a window for each layer's attention, of which the first has no norm."""
    spec = windowed(spec, windows)
    (attention, *rest), *blocks = S.layout(spec.stack).blocks
    return layered(spec, [(S.override(attention, "norm", None), *rest), *blocks])


@register(dim=768, depth=22, heads=12, hidden=1152, vocab=50368, window=65)
def modernbert(o: Options) -> S.Model:
    """ModernBERT: a rotary, gated encoder with windows in two layers of three (2412.13663)."""
    norm = S.LayerNorm(eps=1e-5, bias=False)
    feed = S.FeedForward(hidden=o.hidden, gated=True, bias=False)
    block = tuple(
        S.Sublayer(branch=b, norm=norm) for b in (S.Attention(heads=o.heads, bias=False), feed)
    )
    spec = S.Model(
        dim=o.dim,
        embed=S.Embed(source=S.Tokens(vocab=o.vocab), norm=norm),
        stack=S.Stack(block=block, depth=o.depth, final_norm=norm),
        head=S.Vocabulary(bias=True, dense=True, dense_bias=False, norm=norm),
        init=S.Init(depth_scaled=True),
    )
    spec = alternating(spec, [o.window if i % 3 else None for i in range(o.depth)])
    return turning(spec, S.Rotary(theta=160000.0), S.Rotary())
