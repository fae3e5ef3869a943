"""Walks through a spec, and the sizes that follow from several of its fields."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer.spec.attention import Attention
from anyformer.spec.model import Model, Stack, Sublayer

Where = tuple[str, Model, Stack, Sublayer, Attention]


def models(spec: Model, path: str = "") -> Iterator[tuple[str, Model]]:
    """The model and the encoders inside it, with their paths."""
    yield path, spec
    if spec.encoder is not None:
        yield from models(spec.encoder, f"{path}encoder.")


def attentions(spec: Model) -> Iterator[Where]:
    """Every attention of a model, with its path and what it stands in."""
    for path, model in models(spec):
        kinds = [("block", model.stack.block)]
        kinds += [(f"others.{i}", block) for i, block in enumerate(model.stack.others)]
        for name, block in kinds:
            for j, sub in enumerate(block):
                if isinstance(sub.branch, Attention):
                    at = f"{path}stack.{name}.{j}.branch"
                    yield at, model, model.stack, sub, sub.branch


def head_dim(attention: Attention, dim: int) -> int:
    """Channels of one head's values, and of its q and k unless heads collaborate."""
    return attention.head_dim or dim // attention.heads


def qk_dim(attention: Attention, dim: int) -> int:
    """Channels of one head's q and k."""
    width = head_dim(attention, dim)
    share = attention.collaborate
    return width if share is None else int(share * attention.heads * width)


def sublayers(stack: Stack) -> list[Sublayer]:
    """The sublayers of every kind of block."""
    return [sub for block in (stack.block, *stack.others) for sub in block]


def selves(stack: Stack) -> list[Attention]:
    """The self-attentions of every kind of block."""
    branches = [sub.branch for sub in sublayers(stack)]
    return [b for b in branches if isinstance(b, Attention) and not b.cross]


def crosses(stack: Stack) -> bool:
    """Whether any block reads another sequence."""
    return any(sub.kind == "cross" for sub in sublayers(stack))
