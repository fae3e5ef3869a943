"""Continue prompts."""

from anyformer.generate.options import Sampling
from anyformer.generate.sample import Step, generate, stream
from anyformer.generate.speculative import Draft

__all__ = ["Draft", "Sampling", "Step", "generate", "stream"]
