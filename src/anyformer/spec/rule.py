"""A rule between fields of a spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anyformer.spec.model import Model


@dataclass(frozen=True)
class Rule:
    """What may not be, why, and what to do: `broken` yields the paths where it happens."""

    name: str
    broken: Callable[[Model], Iterator[str]]
    reason: str
    remedy: str
