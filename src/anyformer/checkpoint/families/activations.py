"""Hugging Face's names of activations, both ways."""

from __future__ import annotations

from anyformer.errors import CheckpointError, known_or_raise

OURS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "linear": "identity",
}
THEIRS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "identity": "linear",
}


def ours(name: str) -> str:
    """Our name of one of their activations."""
    return OURS[known_or_raise(str(name), OURS, "activation in config.json", CheckpointError)]


def theirs(name: str) -> str:
    """Their name of one of our activations."""
    return THEIRS[name]
