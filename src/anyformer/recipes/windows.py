"""Layers that see windows of different sizes, as kinds of block."""

from __future__ import annotations

from collections.abc import Iterable

from anyformer.spec import Attention, Model, get, layout, override

ATTENTION = "stack.block.0.branch"


def windowed(spec: Model, windows: Iterable[int | None]) -> Model:
    """The model with a window for each layer's first attention, in the shortest way to say it."""
    per_layer = tuple(windows)
    sizes = tuple(dict.fromkeys(per_layer))
    blocks = tuple(
        get(override(spec, f"{ATTENTION}.window", size), "stack.block") for size in sizes
    )
    kinds = _period(tuple(sizes.index(size) for size in per_layer))
    kinds = () if kinds == tuple(range(len(sizes))) else kinds
    changes = {"stack.block": blocks[0], "stack.others": blocks[1:], "stack.kinds": kinds}
    for path, value in changes.items():
        spec = override(spec, path, value)
    return spec


def windows_of(spec: Model) -> list[int | None]:
    """The window of each layer's first attention."""
    branches = [block[0].branch for block in layout(spec.stack).blocks]
    return [branch.window if isinstance(branch, Attention) else None for branch in branches]


def _period(items: tuple[int, ...]) -> tuple[int, ...]:
    """The shortest beginning that, repeated, gives all items."""
    for size in range(1, len(items)):
        if all(item == items[i % size] for i, item in enumerate(items)):
            return items[:size]
    return items
