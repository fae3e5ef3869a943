"""One table per family, read in both directions.

A row is (their keys, our keys, steps). Each step maps a list of tensors to a list of tensors and
carries its inverse, so that loading runs rows forwards and saving backwards, and the two can't
disagree.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anyformer.errors import CheckpointError
from anyformer.spec import Stack

Tensors = list[Tensor]
SHOWN = 5  # keys that an error lists
LONGEST = 200  # characters of a name that an error shows
REMEDY = "Take config.json and weights of one model, or name the head that is there by task="


@dataclass(frozen=True)
class Step:
    """A change of layout and its inverse."""

    there: Callable[[Tensors], Tensors]
    back: Callable[[Tensors], Tensors]


@dataclass(frozen=True)
class Row:
    """Their keys, ours, and the steps between them."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    steps: tuple[Step, ...] = ()


def row(theirs: str | Iterable[str], ours: str | Iterable[str], *steps: Step) -> Row:
    """A row; a single key may be given as a string."""
    keys = lambda x: (x,) if isinstance(x, str) else tuple(x)
    return Row(keys(theirs), keys(ours), steps)


def linear(theirs: str, ours: str, bias: bool = True) -> Iterator[Row]:
    """The weight and, where there is one, the bias of a linear map or a norm."""
    yield row(f"{theirs}.weight", f"{ours}.weight")
    if bias:
        yield row(f"{theirs}.bias", f"{ours}.bias")


def fused(theirs: str, ours: Sequence[str], *steps: Step) -> Iterator[Row]:
    """Weight and bias of a linear map that holds several of ours, which the steps take apart."""
    for kind in ("weight", "bias"):
        yield row(f"{theirs}.{kind}", [f"{name}.{kind}" for name in ours], *steps)


SLOTS = (*(f"0.branch.{name}" for name in ("q", "k", "v", "out")), "0.norm")
SLOTS = (*SLOTS, "1.branch.up", "1.branch.down", "1.norm")


def layers(depth: int, theirs: str, names: str, slots: tuple[str, ...] = SLOTS) -> Iterator[Row]:
    """Linear maps and norms of every layer: `theirs` with {} for its number, their names in order.

    The order is that of the slots: q, k, v, out, the norm of attention, up, down, the norm of the
    feed-forward. A name of `-` has no row here.
    """
    for i in range(depth):
        for name, slot in zip(names.split(), slots, strict=True):
            if name != "-":
                yield from linear(f"{theirs.format(i)}.{name}", f"stack.blocks.{i}.{slot}")


ATTENTION = tuple(f"branch.{name}" for name in ("q", "k", "v", "out"))
PARTS = {"attention": (*ATTENTION, "norm"), "cross": (*ATTENTION, "norm")}
PARTS["feedforward"] = ("branch.up", "branch.down", "norm", "branch.gate")


def sublayers(stack: Stack, theirs: str, names: Mapping[str, str], ours: str = "") -> Iterator[Row]:
    """Linear maps and norms by the kind of sublayer, in the order of its parts.

    In `theirs` {i} is the layer's number and {j} the sublayer's; `ours` leads to the stack.
    """
    for i in range(stack.depth):
        for j, sub in enumerate(stack.block):
            lead, own = theirs.format(i=i, j=j), f"{ours}stack.blocks.{i}.{j}"
            for name, part in zip(names[sub.kind].split(), PARTS[sub.kind], strict=False):
                yield from linear(f"{lead}.{name}", f"{own}.{part}")


def each(change: Callable[[Tensor], Tensor], undo: Callable[[Tensor], Tensor]) -> Step:
    """A step that changes every tensor by itself."""
    return Step(lambda ts: [change(t) for t in ts], lambda ts: [undo(t) for t in ts])


turned = lambda t: t.mT if t.dim() > 1 else t  # a bias stays as it is
TRANSPOSE = each(turned, turned)
FLIP_ROWS = each(lambda t: t.flip(0), lambda t: t.flip(0))


def split(*sizes: int, dim: int = 0) -> Step:
    """One tensor into several along an axis."""
    return Step(lambda ts: list(ts[0].split(sizes, dim)), lambda ts: [torch.cat(ts, dim)])


def by_head(heads: int, parts: int = 3) -> Step:
    """One fused tensor, head by head [q, k, v], into `parts` tensors."""

    def there(ts: Tensors) -> Tensors:
        rows = ts[0].unflatten(0, (heads, parts, -1))
        return [rows[:, i].flatten(0, 1) for i in range(parts)]

    def back(ts: Tensors) -> Tensors:
        return [torch.stack([t.unflatten(0, (heads, -1)) for t in ts], 1).flatten(0, 2)]

    return Step(there, back)


def reshape(shape: tuple[int, ...], theirs: tuple[int, ...]) -> Step:
    """Another shape of the same numbers: ours, and theirs to go back to."""
    return each(lambda t: t.reshape(shape), lambda t: t.reshape(theirs))


def forwards(item: Row, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors of a row, from theirs."""
    tensors = [theirs[key] for key in item.theirs]
    for step in item.steps:
        tensors = step.there(tensors)
    return dict(zip(item.ours, tensors, strict=True))


def backwards(item: Row, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors of a row, from ours."""
    tensors = [ours[key] for key in item.ours]
    for step in reversed(item.steps):
        tensors = step.back(tensors)
    return dict(zip(item.theirs, tensors, strict=True))


def load(
    theirs: dict[str, Tensor], rows: list[Row], wanted: Iterable[str], where: str = "the checkpoint"
) -> dict[str, Tensor]:
    """Our tensors from theirs; a key without a row or a parameter without a value is an error."""
    found: dict[str, Tensor] = {}
    used: set[str] = set()
    for item in rows:
        if all(key in theirs for key in item.theirs):
            found |= forwards(item, theirs)
            used |= set(item.theirs)
    known = {key for item in rows for key in item.theirs}
    complain(f"{where} holds keys that this family has no row for", set(theirs) - used, known)
    missing = set(wanted) - found.keys()
    gone = {k for item in rows if missing & set(item.ours) for k in item.theirs} - theirs.keys()
    complain(f"{where} lacks what the model needs", gone or missing, set(theirs) or found)
    return found


def save(ours: dict[str, Tensor], rows: list[Row]) -> dict[str, Tensor]:
    """Their tensors from ours; a parameter without a row is an error."""
    out: dict[str, Tensor] = {}
    for item in rows:
        if all(key in ours for key in item.ours):
            out |= {k: t.contiguous() for k, t in backwards(item, ours).items()}
    known = {key for item in rows for key in item.ours}
    complain("the model has parameters that this family has no row for", set(ours) - known, known)
    return out


def complain(what: str, keys: set[str], known: Iterable[str]) -> None:
    """Raise if there are keys, and name the known one nearest to the first."""
    if not keys:
        return
    listed = sorted(keys)
    near = difflib.get_close_matches(listed[0], list(known), 1, 0.5)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    hint = f"; nearest to the first: {near[0]!r}" if near else ""
    names = ", ".join(repr(key[:LONGEST]) for key in listed[:SHOWN])
    raise CheckpointError(f"{what}: {names}{more}{hint}. {REMEDY}")
