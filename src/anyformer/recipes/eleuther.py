"""Decoders whose attention and feed-forward run side by side."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.registry import Options, register


@register(dim=4096, depth=28, heads=16, rotary_dim=64, vocab=50400, dropout=0.0)
def gpt_j(o: Options) -> S.Model:
    """GPT-J: attention and feed-forward side by side behind one norm (Wang and others, 2021)."""
    norm, rotary = S.LayerNorm(eps=1e-5), S.Rotary(dims=o.rotary_dim, layout="pairs")
    attention = S.Attention(
        heads=o.heads, bias=False, causal=True, rotary=rotary, dropout=o.dropout
    )
    feed = S.FeedForward(hidden=4 * o.dim, act="gelu_tanh")
    branch = S.Parallel(branches=(attention, feed), dropout=o.dropout)
    stack = S.Stack(block=(S.Sublayer(branch=branch, norm=norm),), depth=o.depth, final_norm=norm)
    embed = S.Embed(source=S.Tokens(vocab=o.vocab), dropout=o.dropout)
    return S.Model(dim=o.dim, embed=embed, stack=stack, head=S.Vocabulary(tied=False, bias=True))


@register(dim=6144, depth=44, heads=64, hidden=24576, vocab=50432, rotary=0.25, dropout=0.0)
def gpt_neox(o: Options) -> S.Model:
    """GPT-NeoX: attention and feed-forward side by side, with a norm each (arXiv:2204.06745)."""
    norm, turned = S.LayerNorm(eps=1e-5), S.Rotary(dims=int(o.dim // o.heads * o.rotary))
    attention = S.Attention(heads=o.heads, causal=True, rotary=turned, dropout=o.dropout)
    branches = (attention, S.FeedForward(hidden=o.hidden, act="gelu"))
    branch = S.Parallel(branches=branches, norms=(norm, norm), dropout=o.dropout)
    stack = S.Stack(block=(S.Sublayer(branch=branch, norm=None),), depth=o.depth, final_norm=norm)
    embed = S.Embed(source=S.Tokens(vocab=o.vocab), dropout=o.dropout)
    return S.Model(dim=o.dim, embed=embed, stack=stack, head=S.Vocabulary(tied=False))
