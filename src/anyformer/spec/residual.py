"""How a branch joins the residual stream: x is the stream, y the branch's output."""

from __future__ import annotations

from typing import Literal

from anyformer.spec.node import Above, node


@node
class Add:
    """skip · x + branch · y, with fixed factors (macaron: branch=0.5; DeepNet: skip > 1)."""

    skip: Above = 1.0
    branch: Above = 1.0


@node
class ReZero:
    """x + g · branch · y, with one learned g that starts at 0 (arXiv:2003.04887)."""

    branch: Above = 1.0


@node
class Gated:
    """A GRU cell with state x and input branch · y; `bias` opens it towards x (1910.06764).

    It is torch's cell, whose reset gate acts behind the map of x; in the paper it acts before it.
    """

    bias: float = 2.0
    branch: Above = 1.0


@node
class Scaled:
    """A learned factor per channel, on the branch (LayerScale, arXiv:2103.17239) or on the skip."""

    init: float = 1.0
    on: Literal["branch", "skip"] = "branch"
    branch: Above = 1.0


Residual = Add | ReZero | Gated | Scaled
