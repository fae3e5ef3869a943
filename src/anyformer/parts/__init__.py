"""Modules, one for each spec class, found through one registry."""

from anyformer.parts import (  # noqa: F401  they register
    attention,
    convolution,
    distance,
    feedforward,
    loop,
    norm,
    parallel,
    position,
    residual,
)
from anyformer.parts.base import PARTS, build, part

__all__ = ["PARTS", "build", "part"]
