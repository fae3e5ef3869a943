"""A module as data: its name, its own parameters' shapes and its children."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from anyformer.spec import LayerNorm, Norm, ScaleNorm
from anyformer.spec.node import fields

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """A module: its attribute name, what it is, its own parameters, what it contains.

    With `repeats` above 1 it stands for as many equal modules, numbered on from its name.
    """

    name: str
    kind: str
    detail: str = ""
    shapes: dict[str, Shape] = field(default_factory=dict[str, Shape])
    children: tuple[Entry, ...] = ()
    repeats: int = 1

    def keys(self, prefix: str = "") -> dict[str, Shape]:
        """The shape of every parameter below, by its dotted key, as in a state_dict."""
        found = {prefix + name: shape for name, shape in self.shapes.items()}
        for child in self.children:
            for number in range(child.repeats):
                name = child.name if child.repeats == 1 else str(int(child.name) + number)
                found |= child.keys(f"{prefix}{name}.")
        return found

    def size(self) -> int:
        """The number of parameters of one such module, all that is below included."""
        own = sum(math.prod(shape) for shape in self.shapes.values())
        return own + sum(child.size() * child.repeats for child in self.children)

    def walk(self) -> Iterator[tuple[Entry, int]]:
        """This entry and all below, each with how often it is there."""
        yield self, self.repeats
        for child in self.children:
            yield from ((entry, n * self.repeats) for entry, n in child.walk())

    def child(self, name: str) -> Entry:
        """The child of that name."""
        return next(child for child in self.children if child.name == name)


def entry(
    name: str, kind: str, *children: Entry | None, detail: str = "", **shapes: Shape | None
) -> Entry:
    """An entry of the children and shapes that are not None."""
    kept = {key: shape for key, shape in shapes.items() if shape is not None}
    return Entry(name, kind, detail, kept, tuple(c for c in children if c is not None))


def linear(name: str, into: int, out: int, bias: bool = False) -> Entry:
    """A linear map."""
    detail = f"in_features={into}, out_features={out}, bias={bias}"
    return entry(name, "Linear", detail=detail, weight=(out, into), bias=(out,) if bias else None)


def table(name: str, rows: int, width: int) -> Entry:
    """A table of learned vectors."""
    return entry(name, "Embedding", detail=f"{rows}, {width}", weight=(rows, width))


def norm(name: str, spec: Norm | None, width: int) -> Entry | None:
    """A norm of vectors of that width, if there is one."""
    if spec is None:
        return None
    bias = (width,) if isinstance(spec, LayerNorm) and spec.bias else None
    weight = (1,) if isinstance(spec, ScaleNorm) else (width,)
    detail = ", ".join(filter(None, [f"({width},)", f"eps={spec.eps}", notes(spec, "eps")]))
    return entry(name, type(spec).__name__, detail=detail, weight=weight, bias=bias)


def dropout(rate: float) -> Entry | None:
    """Dropout, if there is any."""
    return entry("dropout", "Dropout", detail=f"p={rate}") if rate else None


def notes(spec: Any, *left_out: str) -> str:
    """The fields of a spec node that are not at their defaults, in words."""
    told = [f for f in fields(spec) if f.name not in left_out]
    return ", ".join(
        f"{f.name}={getattr(spec, f.name)!r}" for f in told if getattr(spec, f.name) != f.default
    )
