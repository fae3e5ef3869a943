"""Hugging Face's names of activations, both ways."""

from __future__ import annotations

from anyformer.errors import CheckpointError, known_or_raise

# of several names for one of ours, the last is written
OURS = {"gelu_python": "gelu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}
OURS |= {"gelu_new": "gelu_tanh", "swish": "silu", "linear": "identity"}
OURS |= {same: same for same in ("quick_gelu", "relu", "relu2", "silu", "tanh", "sigmoid")}
THEIRS = {ours: theirs for theirs, ours in OURS.items()}


def ours(name: str) -> str:
    """Our name of one of their activations."""
    return OURS[known_or_raise(str(name), OURS, "activation in config.json", CheckpointError)]


def theirs(name: str) -> str:
    """Their name of one of our activations."""
    return THEIRS[name]
