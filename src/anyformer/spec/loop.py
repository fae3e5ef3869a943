"""What a recursion does beside running its blocks again: steps, injection, depth and halting."""

from __future__ import annotations

from typing import Literal

from anyformer.spec.node import Above, Positive, Rate, node


@node
class Act:
    """Adaptive computation time: each position halts by itself (arXiv:1603.08983, 1807.03819).

    After a round p = sigmoid(w·h + b). A position halts where its p add up to more than 1 -
    epsilon, at the last round at the latest; then its state is copied. What leaves the loop is
    Σ p·h, the last p the remainder. The loss takes cost · (rounds + remainder) of each position.
    All rounds are computed whoever has halted, so that a cache holds what a whole pass does.
    This is the first paper's; the second's listing asks for p before a step, and mixes each state
    into those before it.
    """

    epsilon: Rate = 0.01
    cost: Above = 0.01
    bias: float = 1.0  # that b starts with: above 0 positions halt early


@node
class Exit:
    """A gate that says after each round whether to leave: p(t) = λ(t) · Π (1 - λ) (2510.25741).

    In training the loss is Σ p(t)·L(t) - beta · entropy of p, over the answers of all rounds. A
    position answers with the first round at which p adds up to `share`. All rounds are computed.
    """

    beta: Above = 0.1
    share: Rate = 0.5


@node
class Route:
    """Mixture of recursions: a router says how many rounds a position takes (arXiv:2507.10524).

    token: a softmax over depths before the loop, the likeliest is taken, and the change counts by
    its probability; the loss takes cost · a balance (1 where all depths are taken alike). It looks
    at nothing but the position, in training too.
    expert: at each round the share `capacity` of a row's positions with the largest sigmoid go on,
    of those that did so far, and their change counts by it. This looks along the whole row: what
    comes later decides who goes on. Without training a position goes on where its own sigmoid is
    above 1/2, which the loss (cost · cross-entropy with the choice) teaches; so answers see no
    future, but training does, and a causal stack must allow it by `future`.
    Who doesn't go on keeps his state, which others still see; all rounds are computed. The paper
    weighs the whole new state, not the change.
    """

    choice: Literal["token", "expert"] = "token"
    cost: Above = 0.01
    capacity: tuple[Rate, ...] = ()  # by round; (): 1, then less by 1 / rounds each
    future: bool = False


Halt = Act | Exit | Route


@node
class Loop:
    """How blocks that run again do so; a round is one run of all of them (docs/recursion.md).

    step: a vector by turn, the times that a block ran before, joins the stream before each of its
    applications: learned from zero, sinusoidal, or coordinates (with that of the position, as in
    the Universal Transformer, arXiv:1807.03819).
    inject: what entered the loop, e, joins its state h before each round: add h + e (2311.12424),
    concat W [h, e] (2502.05171), gated g·h + (1 - g)·e with g = sigmoid(W [h, e] + b), stable
    exp(-softplus(d)·exp(a))·h + B e, which can't grow (2604.12946).
    """

    step: Literal["none", "learned", "sinusoidal", "coordinates"] = "none"
    inject: Literal["none", "add", "concat", "gated", "stable"] = "none"
    start: Literal["entered", "zeros"] = "entered"  # the state before the first round
    drawn: Literal["fixed", "uniform", "poisson"] = "fixed"  # rounds of a step of training
    mean: Positive | None = None  # of poisson, log-normal (2502.05171); None: the schedule's rounds
    most: Positive | None = None  # rounds that are drawn at most; None: the schedule's
    window: Positive | None = None  # only the last rounds are learned through
    halt: Halt | None = None
    keys: Literal["own", "first"] = "own"  # whose keys and values a later turn reads (2507.10524)
