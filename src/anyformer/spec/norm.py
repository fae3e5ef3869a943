"""Normalisations of a vector of width d."""

from __future__ import annotations

from anyformer.spec.node import Above, node


@node
class LayerNorm:
    """Subtract the mean, divide by the standard deviation (arXiv:1607.06450)."""

    eps: Above = 1e-5
    bias: bool = True


@node
class RMSNorm:
    """Divide by the root mean square (arXiv:1910.07467)."""

    eps: Above = 1e-6
    offset: bool = False  # the weight is kept as its distance from 1 (Gemma, arXiv:2403.08295)


@node
class ScaleNorm:
    """Divide by the root mean square, with one learned gain for all channels (arXiv:1910.05895).

    The paper divides by the length of the vector: its gain is sqrt(d) times the one here.
    """

    eps: Above = 1e-5


Norm = LayerNorm | RMSNorm | ScaleNorm
