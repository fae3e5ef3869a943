"""Continue prompts."""

from anyformer.generate.sample import Sampling, generate

__all__ = ["Sampling", "generate"]
