"""The weights of a model's attentions over one input, each with the names of its rows and columns.

Letters: H heads, Q queries, K keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from anyformer.errors import InputError
from anyformer.tasks.attention import figure, page


@dataclass(frozen=True, kw_only=True)
class Map:
    """One attention as it was applied once: what each query of each head read of each key."""

    kind: str  # "self-attention", "encoder self-attention", "cross-attention"
    layer: int  # the application, counted from 0
    name: str  # "layer 3", with the block and its turn where blocks run again
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    heads: tuple[int, ...]  # counted from 0
    weights: Tensor  # (H, Q, K), float32
    note: str = ""  # what is to be known of them
    side: int = 0  # where the last keys are patches of an image: those along a side


@dataclass(frozen=True, kw_only=True)
class Attended:
    """All attentions of one pass of a model over one input."""

    title: str
    text: str
    maps: tuple[Map, ...]
    image: Tensor | None = None  # (3, H, W) from 0 to 1, where one was read

    def only(
        self, layers: Iterable[int] | None = None, heads: Iterable[int] | None = None
    ) -> Attended:
        """The same with some layers and heads alone, counted from 0."""
        known = {
            "layer": {m.layer for m in self.maps},
            "head": {h for m in self.maps for h in m.heads},
        }
        wanted = {
            "layer": known["layer"] if layers is None else set(layers),
            "head": known["head"] if heads is None else set(heads),
        }
        for what, numbers in wanted.items():
            strange = sorted(numbers - known[what])
            if strange or not numbers:
                asked = f"there is no {what} {strange[0]}" if strange else f"no {what} is chosen"
                raise InputError(f"{asked}; this model has {spans(known[what])}")
        kept = [m for m in self.maps if m.layer in wanted["layer"]]
        narrowed = (_with_heads(m, [h for h in m.heads if h in wanted["head"]]) for m in kept)
        return replace(self, maps=tuple(m for m in narrowed if m.heads))

    def html(self) -> str:
        """The interactive page as the text of one HTML file."""
        return page.page(self.title, self.text, self.maps, self.image)

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write the interactive page."""
        return _written(Path(file), self.html().encode())

    def png(self, file: str | os.PathLike[str]) -> Path:
        """Write a picture of all heads; it needs matplotlib."""
        return _written(Path(file), figure.png(self.title, self.maps))


def spans(numbers: Iterable[int]) -> str:
    """Numbers in few letters: 0-3,7."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _with_heads(whole: Map, heads: Sequence[int]) -> Map:
    at = [whole.heads.index(head) for head in heads]
    return replace(whole, heads=tuple(heads), weights=whole.weights[at])


def _written(file: Path, content: bytes) -> Path:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        raise InputError(f"can't write {file}: {error.strerror}") from error
    return file
