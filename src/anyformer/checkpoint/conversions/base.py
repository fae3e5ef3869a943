"""A part on its way from one spec to another: its tensors by name, where they came from, and why.

Letters: H heads, G key heads, D channels of a head, d width of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Size, Tensor

from anyformer import spec as S


@dataclass(frozen=True)
class Piece:
    """A tensor, the old keys that it was made from, and what was done, in sentences."""

    tensor: Tensor
    sources: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


@dataclass
class Part:
    """The tensors of a part by their names inside it, changed step by step to a new spec."""

    old: Any
    new: Any
    models: tuple[S.Model, S.Model]  # that the part stands in, before and after
    pieces: dict[str, Piece]
    shapes: dict[str, Size]  # that the new part wants
    draw: Callable[[str], Tensor]  # a fresh tensor of the new part
    norms: dict[str, tuple[S.Norm | None, S.Norm | None]] = field(default_factory=dict)  # "norm."
    relatives: tuple[tuple[S.Relative, ...], tuple[S.Relative, ...]] = ((), ())

    def change(self, name: str, tensor: Tensor, why: str) -> None:
        """Put another tensor in the place of one that is there."""
        piece = self.pieces[name]
        self.pieces[name] = replace(piece, tensor=tensor, said=(*piece.said, why))

    def add(self, name: str, tensor: Tensor, why: str, *of: str) -> None:
        """Put a tensor that was made of others; none: of nothing old."""
        found = [self.pieces[other] for other in of]
        sources = tuple(s for piece in found for s in piece.sources)
        said = tuple(dict.fromkeys(w for piece in found for w in piece.said))
        self.pieces[name] = Piece(tensor, sources, (*said, why))

    def rename(self, before: str, after: str, why: str) -> None:
        """Give all tensors of a module to another one; what that had is dropped."""
        inside = lambda module: [n for n in self.pieces if n.startswith(f"{module}.")]
        for name in inside(after):
            del self.pieces[name]
        for name in inside(before):
            piece = self.pieces.pop(name)
            moved = after + name.removeprefix(before)
            self.pieces[moved] = replace(piece, said=(*piece.said, why))

    def drop(self, names: Iterable[str]) -> None:
        """Leave tensors to start fresh."""
        for name in names:
            self.pieces.pop(name, None)

    def has(self, *names: str) -> bool:
        """Whether all of these tensors are there."""
        return all(name in self.pieces for name in names)

    def fits(self, name: str) -> bool:
        """Whether a tensor is there in the shape that the new part wants."""
        return self.has(name) and self.pieces[name].tensor.shape == self.shapes.get(name)


Step = Callable[[Part], None]


def mean(tensors: list[Tensor]) -> Tensor:
    """The mean, which is the tensor itself, bit for bit, where all are equal."""
    first = tensors[0]
    wide = torch.promote_types(first.dtype, torch.float32)
    apart = sum((t.to(wide) - first.to(wide) for t in tensors[1:]), torch.zeros((), dtype=wide))
    return (first.to(wide) + apart / len(tensors)).to(first.dtype)


def rows(part: Part, name: str, count: int, extra: Tensor, why: str) -> None:
    """Cut a table to its first `count` rows, or lengthen it by what `extra` has behind them."""
    if not part.has(name) or part.pieces[name].tensor.shape[1:] != extra.shape[1:]:
        return
    table = part.pieces[name].tensor
    if count < len(table):
        part.change(name, table[:count], f"its first {count} of {len(table)} rows")
    elif count > len(table):
        new = extra[len(table) : count].to(table)
        part.change(name, torch.cat([table, new]), f"{len(new)} rows more, {why}")


def strongest(strength: Tensor, count: int) -> Tensor:
    """The places of the largest values, in their order."""
    return strength.float().topk(count).indices.sort().values


def biases(part: Part) -> None:
    """A bias that was not there starts at zero, which changes nothing."""
    for name, shape in part.shapes.items():
        weight = f"{name.removesuffix('bias')}weight"
        if name.endswith("bias") and not part.has(name) and part.fits(weight):
            part.add(name, torch.zeros(shape), "a new bias of zeros: nothing changes")
