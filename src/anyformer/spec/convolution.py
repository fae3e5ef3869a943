"""A convolution beside the first block."""

from __future__ import annotations

from anyformer.spec.feedforward import Activation
from anyformer.spec.node import Positive, Rate, node
from anyformer.spec.norm import LayerNorm, Norm


@node
class Convolution:
    """What neighbours say of the stack's input joins the stream after the first block.

    DeBERTa-v2's way to local order (arXiv:2006.03654): norm(x + act(dropout(conv(input)))).
    """

    kernel: Positive = 3  # positions that it sees, itself in the middle
    groups: Positive = 1  # of channels that don't see each other
    act: Activation = "tanh"
    norm: Norm | None = LayerNorm()
    dropout: Rate = 0.0
