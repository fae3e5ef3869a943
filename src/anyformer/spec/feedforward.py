"""The position-wise feed-forward branch."""

from __future__ import annotations

from typing import Literal

from anyformer.spec.node import Positive, Rate, node

Activation = Literal[
    "gelu", "gelu_tanh", "quick_gelu", "relu", "relu2", "silu", "tanh", "sigmoid", "identity"
]


@node
class FeedForward:
    """down(act(up(x))), or down(up(x) · act(gate(x))) where gated (GLU, arXiv:2002.05202)."""

    hidden: Positive | None = None  # None: 4 · dim
    act: Activation = "gelu"
    gated: bool = False
    bias: bool = True
    dropout: Rate = 0.0  # after the activation
