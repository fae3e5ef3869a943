"""What an application of a shared block adds to the weights that it shares."""

from __future__ import annotations

from typing import Literal

from anyformer.spec.node import Above, Positive, node

Adapted = Literal["q", "k", "v", "out", "up", "gate", "down"]


@node
class Lora:
    """W x + alpha / rank · b (a x), with a and b of each application (arXiv:2410.20672).

    Applications of a block that runs once, and branches that are their own, have none: their
    weights are theirs already.
    """

    rank: Positive = 8  # a weight with a smaller side has that for its rank
    alpha: Above | None = None  # None: rank, so that the product counts as it is
    on: tuple[Adapted, ...] = ("q", "k", "v", "out", "up", "gate", "down")
    bias: bool = False  # an application also adds to the biases, where there are some

    @property
    def scale(self) -> float:
        """What the product counts."""
        return 1.0 if self.alpha is None else self.alpha / self.rank
