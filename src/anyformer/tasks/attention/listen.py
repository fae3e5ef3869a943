"""The weights of every attention of one pass, with the application that each belongs to.

The model computes them itself, as for output_attentions; here each stack is asked for them, an
encoder's too, and each attention says where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from anyformer import spec as S
from anyformer.model.stack import Stack
from anyformer.parts.attention import Attention
from anyformer.parts.state import Call
from anyformer.tasks.attention.maps import Map

TALKING = "Heads that talk to each other are shown before their weights are mixed."

Names = tuple[tuple[str, ...], int]  # of positions; where they end in patches, those along a side


@dataclass
class Heard:
    """What one stack said in one pass."""

    schedule: tuple[int, ...]
    weights: list[Tensor] = field(default_factory=list)  # (1, H, Q, K) each
    spoke: list[tuple[str, S.Attention]] = field(default_factory=list)  # path, what it is
    length: int = 0  # positions of the stream, memory tokens among them
    start: int = 0  # positions remembered before them


@contextmanager
def listening(stack: Stack) -> Iterator[Heard]:
    """Hear the attentions of a stack within."""
    heard = Heard(tuple(stack.schedule))

    def begin(_: Any, given: tuple[Any, ...]) -> None:
        call: Call = given[1]
        heard.length, heard.start = call.length, call.start
        call.weights = heard.weights

    def speak(attention: Any, given: tuple[Any, ...]) -> None:
        heard.spoke.append((given[2], attention.spec))

    hooks = [stack.register_forward_pre_hook(begin)]
    hooks += [
        module.register_forward_pre_hook(speak)
        for module in stack.modules()
        if isinstance(module, Attention)
    ]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()


def maps_of(heard: Heard, read: Names, beside: Names, prefix: str) -> Iterator[Map]:
    """The maps of a stack over what it reads, and over a context beside that."""
    (tokens, own), (context, other) = read, beside
    stream = (*numbered("memory token", heard.length - len(tokens)), *tokens)
    past = tuple(f"position {i}" for i in range(-heard.start, 0))
    again = len(set(heard.schedule)) < len(heard.schedule)
    places = list(_places(heard))
    again = again or any(layer >= len(heard.schedule) for layer, _ in places)
    turns: dict[tuple[int, str], int] = {}
    names: set[tuple[str, str]] = set()
    for (layer, path), (_, spec), weights in zip(places, heard.spoke, heard.weights, strict=True):
        block = heard.schedule[min(path[0], len(heard.schedule) - 1)]
        turn = turns.setdefault((block, path[1]), 0)
        turns[block, path[1]] += 1
        kind = "cross-attention" if spec.cross else f"{prefix}self-attention"
        name = f"layer {layer}" + (f" (block {block}, turn {turn})" if again else "")
        name = name if (kind, name) not in names else f"{name}, sublayer {path[1]}"
        names.add((kind, name))
        keys = context if spec.cross else (*past, *stream)
        yield Map(
            kind=kind,
            layer=layer,
            name=name,
            queries=stream,
            keys=(*numbered("memory key", spec.memory), *keys),
            heads=tuple(range(weights.shape[1])),
            weights=weights[0].detach().float().cpu(),
            side=other if spec.cross else own,
            note=TALKING if spec.talking in ("post", "both") else "",
        )


def numbered(name: str, count: int) -> tuple[str, ...]:
    """Names of things that stand in no text."""
    return tuple(f"{name} {i}" for i in range(count))


def _places(heard: Heard) -> Iterator[tuple[int, tuple[int, str]]]:
    """Of each attention: the layer, counted on where a stack goes back, and its path."""
    on, last = 0, (-1, frozenset[str]())
    for path, _ in heard.spoke:
        first, _, rest = path.partition(".")
        at = int(first)
        if at < last[0] or (at == last[0] and rest in last[1]):
            on += last[0] + 1 - at
        last = (at, (last[1] | {rest}) if at == last[0] else frozenset({rest}))
        yield at + on, (at, rest)
