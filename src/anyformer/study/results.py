"""What a study found, as plain data: what statistics and reports read, and nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["done", "diverged", "failed", "running", "waiting"]


@dataclass(frozen=True)
class Point:
    """One evaluation on the validation rows."""

    step: int
    tokens: int  # read in training until then
    flops: float  # of training until then: forward and backward
    seconds: float | None  # of training until then, without evaluation; None: not known
    scores: dict[str, float]  # loss, and accuracy and others where the objective has them


@dataclass(frozen=True)
class Outcome:
    """One run: a variant with one seed and one learning rate."""

    variant: str
    seed: int
    lr: float
    key: str  # the content's hash: the name of the run's folder
    status: Status = "waiting"
    reason: str | None = None  # why it diverged or failed
    points: tuple[Point, ...] = ()
    training: tuple[tuple[int, float], ...] = ()  # step and loss of training
    sample: str | None = None  # text that the model wrote
    note: str | None = None  # what else is to be known: an evaluation that wasn't possible


@dataclass(frozen=True)
class Arm:
    """A variant as it was run: its spec, its size and what it costs."""

    name: str
    changes: tuple[str, ...]  # what its spec has otherwise than the baseline's, a line each
    spec: dict[str, Any]
    parameters: int
    non_embedding: int
    applied: int  # parameters times how often they are applied
    flops: float  # of a forward pass, for each token
    steps: int
    tokens: int  # of each step
    equal: str = ""  # what it has as much of as the baseline, in words; "": what the study says


@dataclass(frozen=True)
class Results:
    """All runs of a study so far, and what they were run for."""

    name: str
    title: str
    baseline: str
    arms: tuple[Arm, ...]
    outcomes: tuple[Outcome, ...]
    seeds: tuple[int, ...]
    rates: tuple[float, ...]  # the grid of learning rates; one: none was tuned
    score: str = "loss"  # what verdicts are about
    lower: bool = True  # whether less of it is better
    anchors: tuple[str, str] | None = None  # two variants whose gap others are measured against
    match: str = "steps"  # what is equal between variants, in words
    study: dict[str, Any] = field(default_factory=dict[str, Any])  # the study itself
    data: dict[str, Any] = field(default_factory=dict[str, Any])  # what was read, with digests
    environment: dict[str, Any] = field(default_factory=dict[str, Any])  # versions and machines
    command: str = ""  # that repeats it

    def arm(self, name: str) -> Arm:
        """The variant of a name."""
        return next(arm for arm in self.arms if arm.name == name)

    def of(self, variant: str, lr: float | None = None) -> tuple[Outcome, ...]:
        """The runs of a variant, of one learning rate where it is given, by seed."""
        found = (o for o in self.outcomes if o.variant == variant and lr in (None, o.lr))
        return tuple(sorted(found, key=lambda o: (o.lr, o.seed)))


def to_json(results: Results) -> str:
    """The results as JSON."""
    return json.dumps(asdict(results), indent=1)


def from_json(text: str) -> Results:
    """Results that to_json wrote."""
    told = json.loads(text)
    told["arms"] = tuple(Arm(**{**a, "changes": tuple(a["changes"])}) for a in told["arms"])
    told["outcomes"] = tuple(_outcome(o) for o in told["outcomes"])
    for name in ("seeds", "rates", "anchors"):
        told[name] = tuple(told[name]) if told[name] is not None else None
    return Results(**told)


def _outcome(told: dict[str, Any]) -> Outcome:
    points = tuple(Point(**p) for p in told["points"])
    training = tuple((int(step), float(loss)) for step, loss in told["training"])
    return Outcome(**{**told, "points": points, "training": training})
