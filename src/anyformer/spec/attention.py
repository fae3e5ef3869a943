"""Attention and what can be changed between q·k and the weighted sum."""

from __future__ import annotations

from typing import Literal

from anyformer.spec.blocks import BlockSparse
from anyformer.spec.distance import Disentangled
from anyformer.spec.node import Above, Natural, Positive, Rate, node
from anyformer.spec.norm import Norm
from anyformer.spec.position import Relative, Rotary, Sinusoidal


@node
class SoftCap:
    """Squash scores into (-value, value) by tanh (arXiv:2408.00118)."""

    value: Above = 50.0


@node
class Temperature:
    """Multiply the scores of each head by a learned factor that starts at `init`."""

    init: Above = 1.0


Mod = SoftCap | Temperature


@node
class Softmax:
    """exp(s) over its sum."""


@node
class TopK:
    """Softmax over the k largest scores of each row (arXiv:1912.11637)."""

    k: Positive = 8


@node
class Entmax15:
    """The sparse 1.5-entmax (arXiv:1909.00015)."""


@node
class Sparsemax:
    """The Euclidean projection onto the simplex (arXiv:1602.02068)."""


@node
class Sigmoid:
    """Each score by itself: sigmoid(s + bias), with no sum over the row (arXiv:2409.04431)."""

    bias: float = 0.0


Weigh = Softmax | TopK | Entmax15 | Sparsemax | Sigmoid


@node
class Attention:
    """Multi-head attention; self-attention unless `cross`."""

    heads: Positive
    kv_heads: Positive | None = None  # None: as heads; head h reads group h // (heads / kv_heads)
    head_dim: Positive | None = None  # None: dim / heads
    bias: bool = True  # of q, k and v
    k_bias: bool | None = None  # None: as bias
    out_bias: bool | None = None  # None: as bias
    scale: Above | None = None  # None: 1 / sqrt(head_dim · kinds of scores that are added)
    dropout: Rate = 0.0  # on the weights
    # what is seen
    causal: bool = False
    window: Positive | None = None  # distances below it are seen
    blocks: BlockSparse | None = None
    cross: bool = False
    context: Positive | None = None  # width of the encoder's output; None: dim
    optional: bool = False  # cross: where nothing is given to read, the sublayer is left out
    memory: Natural = 0  # learned keys and values that every query sees (arXiv:1907.01470)
    # positions
    rotary: Rotary | None = None
    infused: Sinusoidal | None = None  # added to the inputs of q and k (Shortformer)
    relative: tuple[Relative, ...] = ()
    disentangled: Disentangled | None = None  # of the stack's distances, which it needs
    # scores
    qk_norm: Norm | None = None
    collaborate: Above | None = None  # shared q and k of this share of heads·head_dim (2006.16362)
    carry: bool = False  # add the scores of the layers below (RealFormer, arXiv:2012.11747)
    talking: Literal["no", "pre", "post", "both"] = "no"  # heads mixed (arXiv:2003.02436)
    mods: tuple[Mod, ...] = ()
    weigh: Weigh = Softmax()
    # after
    gate: Literal["no", "glu"] = "no"  # attention on attention (arXiv:1908.06954)
    backend: Literal[
        "auto",
        "sdpa",
        "one",
        "far",
        "lead",
        "shelves",
        "tiles",
        "sparse",
        "talking",
        "layered",
        "flex",
        "band",
        "halved",
        "eager",
        "chunked",
    ] = "auto"
