"""The registry: spec class -> module class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from anyformer.errors import SpecError

M = TypeVar("M", bound=type[nn.Module])
PARTS: dict[type, type[nn.Module]] = {}


def part(spec_class: type) -> Callable[[M], M]:
    """Register a module class as the one that a spec class builds."""

    def register(module_class: M) -> M:
        if spec_class in PARTS:
            raise SpecError(f"{spec_class.__name__} has a module already")
        PARTS[spec_class] = module_class
        return module_class

    return register


def build(spec: Any, *sizes: Any) -> nn.Module:
    """The module of a spec, given the sizes that it stands between."""
    if type(spec) not in PARTS:
        raise SpecError(
            f"{type(spec).__name__} has no module: register one by @part({type(spec).__name__})"
        )
    return PARTS[type(spec)](spec, *sizes)
