"""Walks through a spec, and the sizes that follow from several of its fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anyformer.spec.attention import Attention
from anyformer.spec.edit import get, override
from anyformer.spec.feedforward import FeedForward
from anyformer.spec.lora import Lora
from anyformer.spec.model import Model, Stack, Sublayer
from anyformer.spec.node import Custom
from anyformer.spec.parallel import Leaf, Parallel
from anyformer.spec.schedule import LAST

Where = tuple[str, Model, Stack, Sublayer, Attention]


def models(spec: Model, path: str = "") -> Iterator[tuple[str, Model]]:
    """The model and the encoders inside it, with their paths."""
    yield path, spec
    if spec.encoder is not None:
        yield from models(spec.encoder, f"{path}encoder.")


def branches(spec: Model) -> Iterator[tuple[str, Model, Sublayer, Leaf]]:
    """Every branch of a model, with its path and what it stands in."""
    for path, model in models(spec):
        kinds = [("block", model.stack.block)]
        kinds += [(f"others.{i}", block) for i, block in enumerate(model.stack.others)]
        for name, block in kinds:
            for j, sub in enumerate(block):
                for at, leaf in leaves(sub, f"{path}stack.{name}.{j}.branch"):
                    yield at, model, sub, leaf


def attentions(spec: Model) -> Iterator[Where]:
    """Every attention of a model, with its path and what it stands in."""
    for at, model, sub, leaf in branches(spec):
        if isinstance(leaf, Attention):
            yield at, model, model.stack, sub, leaf


def explicit(spec: Model) -> Model:
    """The same model with the sizes that follow from others written out."""
    out = spec
    for at, model, _, leaf in branches(spec):
        follows: dict[str, int | bool] = {}
        if isinstance(leaf, Attention):
            follows = {"head_dim": head_dim(leaf, model.dim), "kv_heads": leaf.heads}
            follows["out_bias"] = leaf.bias
        elif isinstance(leaf, FeedForward):
            follows = {"hidden": 4 * model.dim}
        for name, value in follows.items():
            if get(leaf, name) is None:
                out = override(out, f"{at}.{name}", value)
    return out


def leaves(sub: Sublayer, path: str) -> Iterator[tuple[str, Leaf]]:
    """The branches of a sublayer, with their paths where that of its branch is `path`."""
    several = isinstance(sub.branch, Parallel)
    for i, leaf in enumerate(sub.leaves):
        yield (f"{path}.branches.{i}" if several else path), leaf


def as_read(spec: Model) -> Model:
    """A model as its head sees it: its dim is the width that leaves the stack."""
    out, width = spec.stack.out, spec.embed.dim or spec.dim
    if out is None:
        return spec
    return override(override(spec, "dim", out), "embed.dim", None if width == out else width)


def head_dim(attention: Attention, dim: int) -> int:
    """Channels of one head's values, and of its q and k unless heads collaborate."""
    return attention.head_dim or dim // attention.heads


def qk_dim(attention: Attention, dim: int) -> int:
    """Channels of one head's q and k."""
    width = head_dim(attention, dim)
    share = attention.collaborate
    return width if share is None else int(share * attention.heads * width)


def linears(leaf: Leaf, dim: int) -> dict[str, tuple[int, int, bool]]:
    """The linear maps of a branch: inputs, outputs, and whether there is a bias."""
    if isinstance(leaf, FeedForward):
        hidden = leaf.hidden or 4 * dim
        inner = ("up", "gate") if leaf.gated else ("up",)
        return {n: (dim, hidden, leaf.bias) for n in inner} | {"down": (hidden, dim, leaf.bias)}
    if isinstance(leaf, Custom):
        return {}  # no map of it is known by name
    queries, groups = leaf.heads, leaf.kv_heads or leaf.heads
    keys, values, read = qk_dim(leaf, dim), head_dim(leaf, dim), leaf.context or dim
    shared = leaf.collaborate is not None
    return {
        "q": (dim, keys if shared else queries * keys, leaf.bias),
        "k": (
            read,
            keys if shared else groups * keys,
            leaf.bias if leaf.k_bias is None else leaf.k_bias,
        ),
        "v": (read, groups * values, leaf.bias),
        "out": (
            queries * values,
            dim * (2 if leaf.gate == "glu" else 1),
            leaf.bias if leaf.out_bias is None else leaf.out_bias,
        ),
    }


def updates(lora: Lora, leaf: Leaf, dim: int) -> dict[str, tuple[tuple[int, int, int], bool]]:
    """The maps of a branch that a LoRA adds to: its rank there, inputs, outputs, and a bias."""
    return {
        name: ((min(lora.rank, into, out), into, out), lora.bias and bias)
        for name, (into, out, bias) in linears(leaf, dim).items()
        if name in lora.on
    }


def lora_of(lora: Lora | None, own: tuple[str, ...], sub: Sublayer, dim: int) -> Lora | None:
    """The LoRA of a sublayer: none where its branch is its own, or has no weight that is named."""
    if lora is None or sub.kind in own:
        return None
    if {*own} & {*lora.on}:
        lora = replace(lora, on=tuple(name for name in lora.on if name not in own))
    return lora if any(updates(lora, leaf, dim) for leaf in sub.leaves) else None


def own_maps(own: tuple[str, ...], sub: Sublayer, dim: int) -> dict[str, tuple[int, int, bool]]:
    """The last map of a sublayer's branch, where it is its own though the others are shared."""
    if sub.kind in own or isinstance(sub.branch, Parallel):
        return {}
    found = linears(sub.branch, dim)
    return {name: found[name] for name in LAST if name in own and name in found}


def sublayers(stack: Stack) -> list[Sublayer]:
    """The sublayers of every kind of block."""
    return [sub for block in (stack.block, *stack.others) for sub in block]


def selves(stack: Stack) -> list[Attention]:
    """The self-attentions of every kind of block."""
    branches = [leaf for sub in sublayers(stack) for leaf in sub.leaves]
    return [b for b in branches if isinstance(b, Attention) and not b.cross]


def customs(stack: Stack) -> list[Custom]:
    """The branches of one's own of every kind of block."""
    return [leaf for sub in sublayers(stack) for leaf in sub.leaves if isinstance(leaf, Custom)]


def looks_back(stack: Stack) -> bool:
    """Whether no position of a stack sees a later one."""
    return all(branch.causal for branch in (*selves(stack), *customs(stack)))


def crosses(stack: Stack) -> bool:
    """Whether any block reads another sequence."""
    branches = [leaf for sub in sublayers(stack) for leaf in sub.leaves]
    return any(isinstance(b, Attention) and b.cross for b in branches)
