"""Positions, by where they act.

Absolute ones are added to the embeddings, rotary ones turn q and k, infused ones are added to
the inputs of q and k, relative ones change the scores by distance, and untied ones add a score
of their own between positions.
"""

from __future__ import annotations

from typing import Literal

from anyformer.spec.node import Above, Natural, Positive, node


@node
class Learned:
    """A learned vector per position, added to the embedding."""

    length: Positive
    offset: Natural = 0  # the row of position 0
    scale: Above = 1.0
    skip: Natural | None = None  # a token id without a place: the others count as if it were away


@node
class Sinusoidal:
    """Fixed sines and cosines of the position (arXiv:1706.03762)."""

    theta: Above = 10000.0
    layout: Literal["halves", "pairs"] = "halves"  # sines then cosines, or in turn
    scale: Above = 1.0
    closed: bool = False  # frequencies from 1 to 1 / theta, the last one reached (fairseq)
    offset: Natural = 0  # what position 0 counts as
    skip: Natural | None = None  # a token id that gets zeros, and the others count without it


Absolute = Learned | Sinusoidal


@node
class Linear:
    """Every turn `factor` times slower (arXiv:2306.15595)."""

    factor: Above


@node
class Llama3:
    """Slow turns slower, fast ones as they are, a blend between them (arXiv:2407.21783)."""

    factor: Above = 8.0
    length: Positive = 8192  # positions of the first training
    low: Above = 1.0  # up to so many turns over that length are slow
    high: Above = 4.0  # from so many on they are fast


@node
class Yarn:
    """Slow turns slower, fast ones as they are, a ramp over channels, q and k scaled (2309.00071).

    The ramp goes between the channels that turn `fast` and `slow` times over `length` positions.
    """

    factor: Above
    length: Positive = 4096  # positions of the first training
    fast: Above = 32.0
    slow: Above = 1.0
    gain: Above | None = None  # of q and k; None: 0.1 · ln(factor) + 1, 1 for a factor up to 1
    whole: bool = True  # the ramp goes between whole channels


Scaling = Linear | Llama3 | Yarn


@node
class Rotary:
    """Turn pairs of channels of q and k by the position (arXiv:2104.09864)."""

    theta: Above = 10000.0
    dims: Positive | None = None  # channels that turn, from the first; None: all
    layout: Literal["halves", "pairs"] = "halves"  # pairs (i, i + dims/2) or (2i, 2i + 1)
    scaling: Scaling | None = None  # for longer sequences than in a first training


@node
class Buckets:
    """T5: a learned bias per head and logarithmic bucket of the distance (arXiv:1910.10683)."""

    count: Positive = 32
    max_distance: Positive = 128
    bidirectional: bool = True
    scale: Above = 1.0


@node
class ALiBi:
    """A bias that falls linearly with the distance, a slope per head (arXiv:2108.12409)."""

    learned: bool = False


@node
class Shaw:
    """A learned vector per clipped distance, dotted with q, and with k if asked (arXiv:1803.02155).

    `key_side=False` is Hugging Face's `relative_key`, `True` its `relative_key_query`. One table
    for all heads, distances from -clip to clip.
    """

    clip: Positive
    key_side: bool = False


@node
class XL:
    """Transformer-XL: sinusoids of the distance, projected, two learned biases (1901.02860)."""

    theta: Above = 10000.0
    clamp: Positive | None = None  # distances beyond it count as it
    biases: bool = True  # u and v of its own; False: those of XLBiases in stack.relative


@node
class XLBiases:
    """The u and v of every XL(biases=False) in the stack, one pair for all layers (1901.02860)."""


@node
class XLTable:
    """Transformer-XL with learned tables by distance: a vector and a bias per head, and u.

    It is the authors' `attn_type` 1 and the variant of labml.ai, where all starts at zero. There is
    a row for each distance k - q from -back to ahead; those beyond count as the last.
    """

    back: Positive
    ahead: Natural = 0


Relative = Buckets | ALiBi | Shaw | XL | XLBiases | XLTable


@node
class Untied:
    """TUPE: a score between absolute positions, projected apart from the words (arXiv:2006.15595).

    One set of projections for the whole stack. With `cls`, the first token has no position: its
    row and its column get learned scores of their own.
    """

    length: Positive
    cls: bool = False
