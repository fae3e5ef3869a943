"""Continue prompts."""

from anyformer.generate.choice import Choice, forget
from anyformer.generate.options import Sampling
from anyformer.generate.sample import Step, generate, stream, which
from anyformer.generate.speculative import Draft

__all__ = ["Choice", "Draft", "Sampling", "Step", "forget", "generate", "stream", "which"]
