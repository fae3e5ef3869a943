"""The modules of attention and of its positions, from the spec alone.

Letters: H heads, G key heads.
"""

from __future__ import annotations

from anyformer.errors import SpecError
from anyformer.model.entry import Entry, dropout, entry, linear, norm, notes, table
from anyformer.spec import (
    XL,
    ALiBi,
    Attention,
    Buckets,
    Disentangled,
    Distances,
    LayerNorm,
    Mod,
    Relative,
    Shaw,
    Stack,
    Temperature,
    Untied,
    XLBiases,
    XLTable,
)
from anyformer.spec.walk import head_dim, qk_dim


def attention(spec: Attention, dim: int, name: str = "branch") -> Entry:
    """The modules of an attention."""
    H, G = spec.heads, spec.kv_heads or spec.heads
    values, keys = head_dim(spec, dim), qk_dim(spec, dim)
    read = spec.context or dim
    shared = spec.collaborate is not None
    k_bias = spec.bias if spec.k_bias is None else spec.k_bias
    out = dim * (2 if spec.gate == "glu" else 1)
    return entry(
        name,
        "Attention",
        linear("q", dim, keys if shared else H * keys, spec.bias),
        linear("k", read, keys if shared else G * keys, k_bias),
        linear("v", read, G * values, spec.bias),
        linear("out", H * values, out, spec.bias if spec.out_bias is None else spec.out_bias),
        norm("q_norm", spec.qk_norm, keys),
        norm("k_norm", spec.qk_norm, keys),
        _mods(spec.mods, H) if spec.mods else None,
        relatives(spec.relative, spec, dim) if spec.relative else None,
        _disentangled(spec.disentangled, H * keys, dim) if spec.disentangled else None,
        dropout(spec.dropout),
        detail=_told(spec, values),
        collab=(H, keys) if shared else None,
        memory_k=(1 if shared else G, spec.memory, keys) if spec.memory else None,
        memory_v=(G, spec.memory, values) if spec.memory else None,
        talk_pre=(H, H) if spec.talking in ("pre", "both") else None,
        talk_post=(H, H) if spec.talking in ("post", "both") else None,
    )


def _told(spec: Attention, width: int) -> str:
    shown = ("heads", "head_dim", "bias", "out_bias", "dropout", "qk_norm", "mods", "relative")
    rest = notes(spec, *shown, "k_bias", "disentangled", "memory", "talking")
    return ", ".join(filter(None, [f"heads={spec.heads}, head_dim={width}", rest]))


def _mods(mods: tuple[Mod, ...], heads: int) -> Entry:
    made = [
        entry(
            str(i),
            type(mod).__name__,
            detail=notes(mod),
            gain=(heads,) if isinstance(mod, Temperature) else None,
        )
        for i, mod in enumerate(mods)
    ]
    return entry("mods", "ModuleList", *made)


def relatives(terms: tuple[Relative, ...], served: Attention, dim: int) -> Entry:
    """The modules of relative positions, with the shape of the attention that they serve."""
    made = [_relative(str(i), term, served, dim) for i, term in enumerate(terms)]
    return entry("relative", "ModuleList", *made)


def _relative(name: str, spec: Relative, served: Attention, dim: int) -> Entry:
    H, keys = served.heads, qk_dim(served, dim)
    kind, told = type(spec).__name__, notes(spec)
    match spec:
        case Buckets():
            return entry(name, kind, detail=told, table=(spec.count, H))
        case ALiBi():
            return entry(name, kind, detail=told, slopes=(H,) if spec.learned else None)
        case Shaw():
            return entry(name, kind, detail=told, table=(2 * spec.clip + 1, keys))
        case XL():
            project = linear("project", dim, H * keys)
            own = (H, keys) if spec.biases else None
            return entry(name, kind, project, detail=told, content_bias=own, position_bias=own)
        case XLBiases():
            return entry(name, kind, content_bias=(H, keys), position_bias=(H, keys))
        case XLTable():
            rows = spec.back + spec.ahead + 1
            shapes = {"table": (rows, H, keys), "scalars": (rows, H), "content_bias": (H, keys)}
            return entry(name, kind, detail=told, **shapes)


def _disentangled(spec: Disentangled, width: int, dim: int) -> Entry:
    own = not spec.shared
    return entry(
        "disentangled",
        "Disentangled",
        linear("k", dim, width, spec.bias) if own and spec.c2p else None,
        linear("q", dim, width, bias=True) if own and spec.p2c else None,
        detail=notes(spec),
    )


def distances(spec: Distances, dim: int) -> Entry:
    """The modules of a stack's vectors by distance."""
    rows = table("table", 2 * spec.size, dim)
    normed = norm("norm", spec.norm, dim)
    return entry("distances", "Distances", rows, normed, detail=notes(spec, "norm"))


def untied(spec: Untied, served: Attention, dim: int) -> Entry:
    """The modules of untied positions, with the shape of the attentions that they serve."""
    H, width = served.heads, head_dim(served, dim)
    return entry(
        "untied",
        "Untied",
        table("position", spec.length, dim),
        norm("norm", LayerNorm(), dim),
        linear("q", dim, H * width),
        linear("k", dim, H * width),
        row=(H,) if spec.cls else None,
        column=(H,) if spec.cls else None,
    )


def self_attention(spec: Stack) -> Attention:
    """The self-attention that shared positions serve; the rules make all of them alike."""
    for block in (spec.block, *spec.others):
        for sub in block:
            for leaf in sub.leaves:
                if isinstance(leaf, Attention) and not leaf.cross:
                    return leaf
    raise SpecError("stack.relative and stack.untied need a self-attention")
