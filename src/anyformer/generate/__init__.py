"""Continue prompts."""

from anyformer.generate.options import Sampling
from anyformer.generate.sample import Step, generate, stream

__all__ = ["Sampling", "Step", "generate", "stream"]
