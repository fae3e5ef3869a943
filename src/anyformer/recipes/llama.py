"""Llama and the decoders built like it: RMSNorm, rotary positions, gated feed-forward."""

from __future__ import annotations

import math

from anyformer import spec as S
from anyformer.recipes.registry import Options, edited, register
from anyformer.recipes.windows import turning, windowed

ATTENTION = "stack.block.0.branch"


@register(dim=4096, depth=32, heads=32, kv_heads=None, hidden=11008, vocab=32000, theta=10000.0)
def llama(o: Options) -> S.Model:
    """Llama: a decoder without biases, with rotary positions (arXiv:2302.13971)."""
    norm, rotary = S.RMSNorm(eps=1e-6), S.Rotary(theta=o.theta)
    attention = S.Attention(
        heads=o.heads, kv_heads=o.kv_heads, bias=False, causal=True, rotary=rotary
    )
    feed = S.FeedForward(hidden=o.hidden, act="silu", gated=True, bias=False)
    block = (S.Sublayer(branch=attention, norm=norm), S.Sublayer(branch=feed, norm=norm))
    stack = S.Stack(block=block, depth=o.depth, final_norm=norm)
    embed = S.Embed(source=S.Tokens(vocab=o.vocab))
    return S.Model(dim=o.dim, embed=embed, stack=stack, head=S.Vocabulary(tied=False))


@register(
    dim=4096, depth=32, heads=32, kv_heads=8, hidden=14336, vocab=32000, theta=10000.0, window=4096
)
def mistral(o: Options) -> S.Model:
    """Mistral: Llama with grouped keys and a sliding window (arXiv:2310.06825)."""
    spec = llama(o)
    return S.override(spec, f"{ATTENTION}.window", o.window)


@register(dim=3584, depth=28, heads=28, kv_heads=4, hidden=18944, vocab=152064, theta=1000000.0)
def qwen2(o: Options) -> S.Model:
    """Qwen2: Llama with grouped keys and biases of q, k and v (arXiv:2407.10671)."""
    spec = llama(o)
    spec = S.override(spec, f"{ATTENTION}.bias", True)
    return S.override(spec, f"{ATTENTION}.out_bias", False)


@register(
    dim=4096,
    depth=36,
    heads=32,
    kv_heads=8,
    hidden=12288,
    vocab=151936,
    theta=1000000.0,
    head_dim=128,
)
def qwen3(o: Options) -> S.Model:
    """Qwen3: Llama with a norm on each head's q and k, before they turn (arXiv:2505.09388)."""
    spec = llama(o)
    spec = S.override(spec, f"{ATTENTION}.qk_norm", S.RMSNorm(eps=1e-6))
    return S.override(spec, f"{ATTENTION}.head_dim", o.head_dim)


@register(
    dim=2304, depth=26, heads=8, kv_heads=4, head_dim=256, hidden=9216, vocab=256000, window=4096
)
def gemma2(o: Options) -> S.Model:
    """Gemma 2: norms around each branch, capped scores, a window in turn (arXiv:2408.00118)."""
    norm = S.RMSNorm(eps=1e-6, offset=True)
    changes = {
        "embed.scale": math.sqrt(o.dim),
        "stack.block.*.norm": norm,
        "stack.block.*.place": "sandwich",
        "stack.final_norm": norm,
        f"{ATTENTION}.head_dim": o.head_dim,
        f"{ATTENTION}.scale": o.head_dim**-0.5,
        f"{ATTENTION}.mods": (S.SoftCap(value=50.0),),
        "stack.block.1.branch.act": "gelu_tanh",
        "head": S.Vocabulary(tied=True, cap=30.0),
    }
    spec = edited(llama(o.but(theta=10000.0)), changes)
    return windowed(spec, [None if i % 2 else o.window for i in range(o.depth)])


@register(
    dim=2304, depth=26, heads=8, kv_heads=4, head_dim=256, hidden=9216, vocab=262208, window=4096
)
def gemma3(o: Options) -> S.Model:
    """Gemma 3: norms of q and k, and a window in five layers of six (arXiv:2503.19786)."""
    changes = {
        f"{ATTENTION}.mods": (),
        f"{ATTENTION}.qk_norm": S.RMSNorm(eps=1e-6, offset=True),
        "head.cap": None,
    }
    spec = edited(gemma2(o), changes)
    spec = windowed(spec, [o.window if (i + 1) % 6 else None for i in range(o.depth)])
    return turning(spec, S.Rotary(theta=1e6), S.Rotary())
