"""Modules, one for each spec class, found through one registry."""

from anyformer.parts import attention, feedforward, norm, parallel, position, residual  # noqa: F401
from anyformer.parts.base import PARTS, build, part

__all__ = ["PARTS", "build", "part"]
