"""The decoder lineage that GPT began."""

from __future__ import annotations

import math

from anyformer.recipes.registry import edited, register
from anyformer.recipes.windows import windowed
from anyformer.spec import (
    Attention,
    Embed,
    FeedForward,
    Init,
    LayerNorm,
    Learned,
    Model,
    Sinusoidal,
    Stack,
    Sublayer,
    Tokens,
    Vocabulary,
)
from anyformer.spec.node import Positive, Rate

ATTENTION, FEED = "stack.block.0.branch", "stack.block.1.branch"


@register
def gpt2(
    dim: Positive = 768,
    depth: Positive = 12,
    heads: Positive = 12,
    vocab: Positive = 50257,
    length: Positive = 1024,
    dropout: Rate = 0.1,
) -> Model:
    """GPT-2: a pre-norm decoder with a tied head (Radford et al., 2019)."""
    norm = LayerNorm(eps=1e-5)
    attention = Attention(heads=heads, causal=True, dropout=dropout)
    branches = (attention, FeedForward(hidden=4 * dim, act="gelu_tanh"))
    block = tuple(Sublayer(branch=b, norm=norm, dropout=dropout) for b in branches)
    embed = Embed(source=Tokens(vocab=vocab), position=Learned(length=length), dropout=dropout)
    stack = Stack(block=block, depth=depth, final_norm=norm)
    init = Init(std=0.02, depth_scaled=True)
    return Model(dim=dim, embed=embed, stack=stack, head=Vocabulary(tied=True), init=init)


@register
def gpt(
    dim: Positive = 768,
    depth: Positive = 12,
    heads: Positive = 12,
    vocab: Positive = 40478,
    length: Positive = 512,
    dropout: Rate = 0.1,
) -> Model:
    """GPT: a post-norm decoder with a tied head (Radford et al., 2018)."""
    changes = {"stack.block.*.place": "post", "stack.final_norm": None, "init.depth_scaled": False}
    return edited(gpt2(dim, depth, heads, vocab, length, dropout), changes)


@register
def gpt3(
    dim: Positive = 12288,
    depth: Positive = 96,
    heads: Positive = 96,
    head_dim: Positive | None = 128,
    vocab: Positive = 50257,
    length: Positive = 2048,
    window: Positive = 128,
    dropout: Rate = 0.0,
) -> Model:
    """GPT-3: GPT-2 with dense and banded attention in turn (arXiv:2005.14165).

    The paper doesn't say how wide the band is.
    """
    changes = {f"{ATTENTION}.head_dim": head_dim}
    spec = edited(gpt2(dim, depth, heads, vocab, length, dropout), changes)
    return windowed(spec, [window if i % 2 else None for i in range(depth)])


@register
def gpt_neo(
    dim: Positive = 2048,
    depth: Positive = 24,
    heads: Positive = 16,
    vocab: Positive = 50257,
    length: Positive = 2048,
    window: Positive = 256,
    dropout: Rate = 0.0,
) -> Model:
    """GPT-Neo: GPT-2 with unscaled scores, and a window every other layer (Black et al., 2021)."""
    changes = {"bias": False, "out_bias": True, "scale": 1.0}
    paths = {f"{ATTENTION}.{name}": value for name, value in changes.items()}
    paths["init.depth_scaled"] = False
    spec = edited(gpt2(dim, depth, heads, vocab, length, dropout), paths)
    return windowed(spec, [window if i % 2 else None for i in range(depth)])


@register
def ctrl(
    dim: Positive = 1280,
    depth: Positive = 48,
    heads: Positive = 16,
    hidden: Positive = 8192,
    vocab: Positive = 246534,
    dropout: Rate = 0.1,
) -> Model:
    """CTRL: a decoder with sinusoids that reads control codes (arXiv:1909.05858)."""
    changes = {
        "embed.position": Sinusoidal(),
        "embed.scale": math.sqrt(dim),
        "stack.block.*.norm.eps": 1e-6,
        "stack.final_norm.eps": 1e-6,
        f"{ATTENTION}.dropout": 0.0,
        FEED: FeedForward(hidden=hidden, act="relu"),
        "head.bias": True,
        "init.depth_scaled": False,
    }
    return edited(gpt2(dim, depth, heads, vocab, 256, dropout), changes)


@register
def opt(
    dim: Positive = 768,
    depth: Positive = 12,
    heads: Positive = 12,
    hidden: Positive = 3072,
    vocab: Positive = 50272,
    length: Positive = 2048,
    dropout: Rate = 0.1,
) -> Model:
    """OPT: GPT-3 with ReLU, in the open (arXiv:2205.01068)."""
    changes = {
        "embed.position.offset": 2,
        "embed.dropout": 0.0,
        f"{ATTENTION}.dropout": 0.0,
        FEED: FeedForward(hidden=hidden, act="relu"),
        "init.depth_scaled": False,
    }
    return edited(gpt2(dim, depth, heads, vocab, length, dropout), changes)
