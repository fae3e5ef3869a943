"""Models on disk."""

from anyformer.checkpoint.native import load, save

__all__ = ["load", "save"]
