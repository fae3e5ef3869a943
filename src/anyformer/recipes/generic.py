"""Plain models to start from: pre-norm, learned positions, tied head, no dropout."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.registry import Options, register


def _stack(depth: int, *attentions: S.Attention) -> S.Stack:
    branches: tuple[S.Branch, ...] = (*attentions, S.FeedForward())
    return S.Stack(block=tuple(S.Sublayer(branch=b) for b in branches), depth=depth)


def _embed(vocab: int, length: int) -> S.Embed:
    return S.Embed(source=S.Tokens(vocab=vocab), position=S.Learned(length=length))


@register(dim=512, depth=6, heads=8, vocab=32000, length=512)
def encoder(o: Options) -> S.Model:
    """A plain pre-norm encoder that predicts tokens (after arXiv:1706.03762)."""
    stack = _stack(o.depth, S.Attention(heads=o.heads))
    return S.Model(dim=o.dim, embed=_embed(o.vocab, o.length), stack=stack, head=S.Vocabulary())


@register(dim=512, depth=6, heads=8, vocab=32000, length=512)
def decoder(o: Options) -> S.Model:
    """A plain pre-norm decoder that predicts the next token (after arXiv:1706.03762)."""
    stack = _stack(o.depth, S.Attention(heads=o.heads, causal=True))
    return S.Model(dim=o.dim, embed=_embed(o.vocab, o.length), stack=stack, head=S.Vocabulary())


@register(dim=512, depth=6, heads=8, vocab=32000, length=512)
def encoder_decoder(o: Options) -> S.Model:
    """A plain pre-norm encoder-decoder with one token table (after arXiv:1706.03762)."""
    embed = _embed(o.vocab, o.length)
    stack = _stack(
        o.depth, S.Attention(heads=o.heads, causal=True), S.Attention(heads=o.heads, cross=True)
    )
    reader = S.Model(dim=o.dim, embed=embed, stack=_stack(o.depth, S.Attention(heads=o.heads)))
    return S.Model(
        dim=o.dim, embed=embed, stack=stack, head=S.Vocabulary(), encoder=reader, share_tokens=True
    )
