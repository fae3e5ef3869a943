"""What is raised where a law is broken, and the comparisons that raise it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

CLOSE = 1e-9  # of the largest number compared: float64 keeps about 1e-16
Pair = tuple[Tensor, Tensor]  # what was found and what was wanted
NOTED: ContextVar[list[Pair] | None] = ContextVar("NOTED", default=None)


@contextmanager
def noting() -> Iterator[list[Pair]]:
    """Within it, comparisons of numbers raise nothing and note what they compare, in order."""
    noted: list[Pair] = []
    before = NOTED.set(noted)
    try:
        yield noted
    finally:
        NOTED.reset(before)


class BrokenError(AssertionError):
    """A law that does not hold: what was looked at, and where it can be measured by how much."""

    def __init__(self, what: str, off: float | None = None, limit: float | None = None):
        measured = "" if off is None else f": off by {off:.2e}, more than {limit or 0.0:.2e}"
        super().__init__(f"{what}{measured}")
        self.what, self.off, self.limit = what, off, limit


class NotFiniteError(BrokenError):
    """Numbers that are none, which may be a matter of their size alone."""


def holds(true: bool | Tensor, what: str) -> None:
    """Raise unless it is true; `what` says how it is broken."""
    if not true:
        raise BrokenError(what)


def finite(answers: Sequence[Tensor], what: str) -> None:
    """Raise unless every number of some tensors is one."""
    if not all(bool(torch.isfinite(t).all()) for t in answers):
        raise NotFiniteError(f"{what} are not finite")


def same(found: Tensor, wanted: Tensor, what: str) -> None:
    """Raise unless two tensors agree up to rounding."""
    shapes = tuple(found.shape), tuple(wanted.shape)
    holds(found.shape == wanted.shape, f"{what}: of shape {shapes[0]}, not {shapes[1]}")
    noted = NOTED.get()
    if noted is not None:
        noted.append((found.detach().clone(), wanted.detach().clone()))
    if noted is not None or _near(found, wanted):
        return
    numbers = bool(torch.isfinite(found).all() and torch.isfinite(wanted).all())
    if not numbers:
        raise NotFiniteError(f"{what}: not finite")
    off, limit = measured(found, wanted)
    if off > limit:
        raise BrokenError(what, off, limit)


def measured(found: Tensor, wanted: Tensor) -> tuple[float, float]:
    """By how much a tensor is off, and by how much it may be."""
    if not found.numel():
        return 0.0, CLOSE
    return (found - wanted).abs().max().item(), CLOSE * (1 + wanted.abs().max().item())


def _near(found: Tensor, wanted: Tensor) -> bool:
    """Whether two tensors agree within the least limit; one with what is no number never does."""
    return not found.numel() or bool((found - wanted).abs().max() <= CLOSE)


def same_each(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str) -> None:
    """Raise unless tensors of the same names agree up to rounding; `what` takes the name."""
    pairs = [(found[name], tensor) for name, tensor in wanted.items()]
    if NOTED.get() is None and all(
        a.shape == b.shape for a, b in pairs
    ):  # at once, since there are many small ones
        flat = [torch.cat([t.flatten() for t in side]) for side in zip(*pairs, strict=True)]
        if not flat or _near(flat[0], flat[1]):
            return
    for name, tensor in wanted.items():
        same(found[name], tensor, what.format(name))


def finite_each(found: Mapping[str, Tensor], what: str) -> None:
    """Raise unless every number of some named tensors is one; `what` takes the name."""
    whole = torch.cat([tensor.flatten() for tensor in found.values()]) if found else torch.zeros(1)
    if bool(torch.isfinite(whole).all()):
        return
    for name, tensor in found.items():
        finite([tensor], what.format(name))


def all_same(found: list[Tensor], wanted: list[Tensor], what: str) -> None:
    """Raise unless two lists of tensors agree up to rounding."""
    holds(len(found) == len(wanted) > 0, f"{what}: {len(found)} answers, not {len(wanted)}")
    for a, b in zip(found, wanted, strict=True):
        same(a, b, what)
