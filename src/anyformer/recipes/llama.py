"""Llama and the decoders built like it: RMSNorm, rotary positions, gated feed-forward."""

from __future__ import annotations

import math

from anyformer.recipes.registry import edited, register
from anyformer.recipes.windows import windowed
from anyformer.spec import (
    Attention,
    Embed,
    FeedForward,
    Model,
    RMSNorm,
    Rotary,
    SoftCap,
    Stack,
    Sublayer,
    Tokens,
    Vocabulary,
    override,
)
from anyformer.spec.node import Above, Positive

ATTENTION = "stack.block.0.branch"


@register
def llama(
    dim: Positive = 4096,
    depth: Positive = 32,
    heads: Positive = 32,
    kv_heads: Positive | None = None,
    hidden: Positive = 11008,
    vocab: Positive = 32000,
    theta: Above = 10000.0,
) -> Model:
    """Llama: a decoder without biases, with rotary positions (arXiv:2302.13971)."""
    norm, rotary = RMSNorm(eps=1e-6), Rotary(theta=theta)
    attention = Attention(heads=heads, kv_heads=kv_heads, bias=False, causal=True, rotary=rotary)
    feed = FeedForward(hidden=hidden, act="silu", gated=True, bias=False)
    block = (Sublayer(branch=attention, norm=norm), Sublayer(branch=feed, norm=norm))
    stack = Stack(block=block, depth=depth, final_norm=norm)
    embed = Embed(source=Tokens(vocab=vocab))
    return Model(dim=dim, embed=embed, stack=stack, head=Vocabulary(tied=False))


@register
def mistral(
    dim: Positive = 4096,
    depth: Positive = 32,
    heads: Positive = 32,
    kv_heads: Positive | None = 8,
    hidden: Positive = 14336,
    vocab: Positive = 32000,
    theta: Above = 10000.0,
    window: Positive | None = 4096,
) -> Model:
    """Mistral: Llama with grouped keys and a sliding window (arXiv:2310.06825)."""
    spec = llama(dim, depth, heads, kv_heads, hidden, vocab, theta)
    return override(spec, f"{ATTENTION}.window", window)


@register
def qwen2(
    dim: Positive = 3584,
    depth: Positive = 28,
    heads: Positive = 28,
    kv_heads: Positive | None = 4,
    hidden: Positive = 18944,
    vocab: Positive = 152064,
    theta: Above = 1e6,
) -> Model:
    """Qwen2: Llama with grouped keys and biases of q, k and v (arXiv:2407.10671)."""
    spec = llama(dim, depth, heads, kv_heads, hidden, vocab, theta)
    spec = override(spec, f"{ATTENTION}.bias", True)
    return override(spec, f"{ATTENTION}.out_bias", False)


@register
def qwen3(
    dim: Positive = 4096,
    depth: Positive = 36,
    heads: Positive = 32,
    kv_heads: Positive | None = 8,
    hidden: Positive = 12288,
    vocab: Positive = 151936,
    theta: Above = 1e6,
    head_dim: Positive | None = 128,
) -> Model:
    """Qwen3: Llama with a norm on each head's q and k, before they turn (arXiv:2505.09388)."""
    spec = llama(dim, depth, heads, kv_heads, hidden, vocab, theta)
    spec = override(spec, f"{ATTENTION}.qk_norm", RMSNorm(eps=1e-6))
    return override(spec, f"{ATTENTION}.head_dim", head_dim)


@register
def gemma2(
    dim: Positive = 2304,
    depth: Positive = 26,
    heads: Positive = 8,
    kv_heads: Positive | None = 4,
    head_dim: Positive = 256,
    hidden: Positive = 9216,
    vocab: Positive = 256000,
    window: Positive = 4096,
) -> Model:
    """Gemma 2: norms around each branch, capped scores, a window in turn (arXiv:2408.00118)."""
    norm = RMSNorm(eps=1e-6, offset=True)
    changes = {
        "embed.scale": math.sqrt(dim),
        "stack.block.*.norm": norm,
        "stack.block.*.place": "sandwich",
        "stack.final_norm": norm,
        f"{ATTENTION}.head_dim": head_dim,
        f"{ATTENTION}.scale": head_dim**-0.5,
        f"{ATTENTION}.mods": (SoftCap(value=50.0),),
        "stack.block.1.branch.act": "gelu_tanh",
        "head": Vocabulary(tied=True, cap=30.0),
    }
    spec = edited(llama(dim, depth, heads, kv_heads, hidden, vocab), changes)
    return windowed(spec, [None if i % 2 else window for i in range(depth)])
