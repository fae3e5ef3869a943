"""Layers that see windows of different sizes, as kinds of block."""

from __future__ import annotations

from collections.abc import Iterable

from anyformer import spec as S
from anyformer.spec.walk import attentions

ATTENTION = "stack.block.0.branch"


def windowed(spec: S.Model, windows: Iterable[int | None]) -> S.Model:
    """The model with a window for each layer's first attention, in the shortest way to say it."""
    per_layer = tuple(windows)
    wide = lambda size: S.get(S.override(spec, f"{ATTENTION}.window", size), "stack.block")
    made = {size: wide(size) for size in dict.fromkeys(per_layer)}
    return layered(spec, [made[size] for size in per_layer])


def layered(spec: S.Model, blocks: Iterable[tuple[S.Sublayer, ...]]) -> S.Model:
    """The model with a block for each layer, in the shortest way to say it."""
    per_layer = tuple(blocks)
    unique = tuple(dict.fromkeys(per_layer))
    kinds = _period(tuple(unique.index(block) for block in per_layer))
    kinds = () if kinds == tuple(range(len(unique))) else kinds
    changes = {"stack.block": unique[0], "stack.others": unique[1:], "stack.kinds": kinds}
    for path, value in changes.items():
        spec = S.override(spec, path, value)
    return spec


def turning(spec: S.Model, full: S.Rotary, local: S.Rotary) -> S.Model:
    """The model with rotary positions of one sort without a window, of another sort with one."""
    for path, _, _, _, attention in attentions(spec):
        spec = S.override(spec, f"{path}.rotary", full if attention.window is None else local)
    return spec


def windows_of(spec: S.Model) -> list[int | None]:
    """The window of each layer's first attention."""
    branches = [block[0].branch for block in S.layout(spec.stack).blocks]
    return [branch.window if isinstance(branch, S.Attention) else None for branch in branches]


def _period(items: tuple[int, ...]) -> tuple[int, ...]:
    """The shortest beginning that, repeated, gives all items."""
    for size in range(1, len(items)):
        if all(item == items[i % size] for i, item in enumerate(items)):
            return items[:size]
    return items
