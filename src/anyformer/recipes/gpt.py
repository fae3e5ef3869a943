"""The decoder lineage that GPT began."""

from __future__ import annotations

import math

from anyformer import spec as S
from anyformer.recipes.registry import Options, edited, register
from anyformer.recipes.windows import windowed

ATTENTION, FEED = "stack.block.0.branch", "stack.block.1.branch"


@register(dim=768, depth=12, heads=12, vocab=50257, length=1024, dropout=0.1)
def gpt2(o: Options) -> S.Model:
    """GPT-2: a pre-norm decoder with a tied head (Radford et al., 2019)."""
    norm = S.LayerNorm(eps=1e-5)
    attention = S.Attention(heads=o.heads, causal=True, dropout=o.dropout)
    branches = (attention, S.FeedForward(hidden=4 * o.dim, act="gelu_tanh"))
    block = tuple(S.Sublayer(branch=b, norm=norm, dropout=o.dropout) for b in branches)
    embed = S.Embed(
        source=S.Tokens(vocab=o.vocab), position=S.Learned(length=o.length), dropout=o.dropout
    )
    stack = S.Stack(block=block, depth=o.depth, final_norm=norm)
    init = S.Init(std=0.02, depth_scaled=True)
    return S.Model(dim=o.dim, embed=embed, stack=stack, head=S.Vocabulary(tied=True), init=init)


@register(dim=768, depth=12, heads=12, vocab=40478, length=512, dropout=0.1)
def gpt(o: Options) -> S.Model:
    """GPT: a post-norm decoder with a tied head (Radford et al., 2018)."""
    changes = {"stack.block.*.place": "post", "stack.final_norm": None, "init.depth_scaled": False}
    return edited(gpt2(o), changes)


@register(
    dim=12288, depth=96, heads=96, head_dim=128, vocab=50257, length=2048, window=128, dropout=0.0
)
def gpt3(o: Options) -> S.Model:
    """GPT-3: GPT-2 with dense and banded attention in turn (arXiv:2005.14165).

    The paper doesn't say how wide the band is.
    """
    changes = {f"{ATTENTION}.head_dim": o.head_dim}
    spec = edited(gpt2(o), changes)
    return windowed(spec, [o.window if i % 2 else None for i in range(o.depth)])


@register(dim=2048, depth=24, heads=16, vocab=50257, length=2048, window=256, dropout=0.0)
def gpt_neo(o: Options) -> S.Model:
    """GPT-Neo: GPT-2 with unscaled scores, and a window every other layer (Black et al., 2021)."""
    changes = {"bias": False, "out_bias": True, "scale": 1.0}
    paths = {f"{ATTENTION}.{name}": value for name, value in changes.items()}
    paths["init.depth_scaled"] = False
    spec = edited(gpt2(o), paths)
    return windowed(spec, [o.window if i % 2 else None for i in range(o.depth)])


@register(dim=1280, depth=48, heads=16, hidden=8192, vocab=246534, dropout=0.1)
def ctrl(o: Options) -> S.Model:
    """CTRL: a decoder with sinusoids that reads control codes (arXiv:1909.05858)."""
    changes = {
        "embed.position": S.Sinusoidal(),
        "embed.scale": math.sqrt(o.dim),
        "stack.block.*.norm.eps": 1e-6,
        "stack.final_norm.eps": 1e-6,
        f"{ATTENTION}.dropout": 0.0,
        FEED: S.FeedForward(hidden=o.hidden, act="relu"),
        "head.bias": True,
        "init.depth_scaled": False,
    }
    return edited(gpt2(o.but(length=256)), changes)


@register(dim=768, depth=12, heads=12, hidden=3072, vocab=50272, length=2048, dropout=0.1)
def opt(o: Options) -> S.Model:
    """OPT: GPT-3 with ReLU, in the open (arXiv:2205.01068)."""
    changes = {
        "embed.position.offset": 2,
        "embed.dropout": 0.0,
        f"{ATTENTION}.dropout": 0.0,
        FEED: S.FeedForward(hidden=o.hidden, act="relu"),
        "init.depth_scaled": False,
    }
    return edited(gpt2(o), changes)
