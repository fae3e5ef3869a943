"""Results that no run made: sums of known effects and noise, for statistics and reports."""

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence

from anyformer.study.results import Arm, Outcome, Point, Results

SEEDS = (1, 2, 3)


def arm(name: str, changes: Sequence[str] = (), **more) -> Arm:
    told = dict(parameters=820_000, non_embedding=790_000, applied=790_000, flops=1.7e6)
    told |= dict(spec={"name": name}, steps=1000, tokens=4096) | more
    return Arm(name=name, changes=tuple(changes), **told)


def run(variant: str, seed: int, lr: float, value: float | None, **more) -> Outcome:
    """A run with one point; without a value it waits."""
    points = () if value is None else (Point(1000, 4_096_000, 2e13, 60.0, {"loss": value}),)
    told = dict(status="waiting" if value is None else "done", points=points) | more
    return Outcome(variant=variant, seed=seed, lr=lr, key=f"{variant}-{seed}-{lr}", **told)


def table(values: Mapping[str, Mapping[float, Sequence[float | None]]], **more) -> Results:
    """Results from final scores by variant and rate, seeds 1, 2, …; the first is the baseline."""
    outcomes = [
        run(name, seed, lr, value)
        for name, rates in values.items()
        for lr, scores in rates.items()
        for seed, value in enumerate(scores, 1)
    ]
    names = list(values)
    seeds = tuple(sorted({o.seed for o in outcomes}))
    rates = tuple(sorted({o.lr for o in outcomes}))
    told = dict(name="table", title="A table", baseline=names[0], seeds=seeds, rates=rates)
    told |= dict(arms=tuple(arm(n, [f"{n} on"]) for n in names), outcomes=tuple(outcomes))
    return Results(**(told | more))


def changed(results: Results, variant: str, seed: int, lr: float, **more) -> Results:
    """The results with one run told otherwise."""
    outcomes = tuple(
        dataclasses.replace(o, **more) if (o.variant, o.seed, o.lr) == (variant, seed, lr) else o
        for o in results.outcomes
    )
    return dataclasses.replace(results, outcomes=outcomes)


# ---------------------------------------------------------------- one that looks like a real study

RATES = (0.001, 0.003, 0.01)
ARMS = (
    arm("plain", flops=1.70e6),
    arm("rotary", ["position: Absolute → Rotary(base=10000)"], parameters=804_000, flops=1.73e6),
    arm("glu", ["stack.feedforward.glu: False → True"], parameters=1_082_000, flops=2.22e6),
    arm(
        "recursion",
        ["stack.schedule: Plain → Shared(unique=1)"],
        parameters=228_000,
        non_embedding=198_000,
    ),
    arm("t5 bias", ["position: Absolute → T5Bias(buckets=32)"], parameters=805_000, flops=1.71e6),
)
_EFFECT = {"plain": 0.0, "rotary": -0.062, "glu": -0.034, "recursion": 0.071, "t5 bias": -0.002}


def _points(rng: random.Random, name: str, seed: int, lr: float, steps: int) -> tuple[Point, ...]:
    cost = next(a for a in ARMS if a.name == name).flops
    shift = _EFFECT[name] + 0.03 * math.log10(lr / 0.003) ** 2 + random.Random(seed).gauss(0, 0.008)
    points = []
    for step in range(0, steps + 1, 100):
        tokens = step * 4096
        grown = step / 1000
        loss = 1.74 + shift * min(1, grown * 1.2) + 2.6 * math.exp(-4.5 * grown**0.7)
        loss += rng.gauss(0, 0.004)
        scores = {"loss": loss, "accuracy": 0.52 - (loss - 1.74) * 0.16}
        seconds = step * 0.021 * cost / 1.7e6 * rng.uniform(0.97, 1.03)
        points.append(Point(step, tokens, tokens * cost * 3, seconds, scores))
    return tuple(points)


def _study_run(name: str, seed: int, lr: float) -> Outcome:
    rng = random.Random(f"{name} {seed} {lr}")
    told = dict(status="done", reason=None)
    steps = 1000
    if (name, seed, lr) == ("glu", 2, 0.01):
        steps, told = 400, dict(status="diverged", reason="the loss was nan at step 431")
    if (name, seed, lr) == ("t5 bias", 3, 0.01):
        steps, told = 600, dict(status="running")
    points = _points(rng, name, seed, lr, steps)
    training = tuple((s, 1.7 + 2.6 * math.exp(-s / 250)) for s in range(0, steps, 50))
    sample = (
        f"def {name.replace(' ', '_')}(self, key):\n    return self._data[key] if key else None\n"
    )
    return Outcome(name, seed, lr, rng.randbytes(6).hex(), points=points, training=training,
                   sample=sample if told["status"] == "done" else None, **told)  # fmt: skip


def study(**more) -> Results:
    """5 variants × 3 seeds × 3 rates; one run diverged, one is still running."""
    outcomes = tuple(_study_run(a.name, seed, lr) for a in ARMS for lr in RATES for seed in SEEDS)
    told = dict(
        name="first",
        title="Does a small decoder gain from rotary positions, GLU, recursion or T5's bias?",
        baseline="plain",
        arms=ARMS,
        outcomes=outcomes,
        seeds=SEEDS,
        rates=RATES,
        match="steps",
        study={"objective": "causal", "budget": {"steps": 1000}, "seeds": list(SEEDS)},
        data={"train": "Python's standard library, 9.4 MB", "sha256": "5f2c9e0b" * 8},
        environment={"anyformer": "0.1.0", "torch": "2.13.0", "device": "cpu", "cores": 2},
        command="anyformer compare --seeds 3 --rates 0.001,0.003,0.01",
    )
    return Results(**(told | more))


def many(variants: int = 24) -> Results:
    """A study of many variants, one rate."""
    rng = random.Random(0)
    values = {"baseline": {0.003: [2.0 + rng.gauss(0, 0.005) for _ in SEEDS]}}
    for i in range(variants):
        effect = rng.gauss(0, 0.02)
        values[f"variant {i}"] = {0.003: [2.0 + effect + rng.gauss(0, 0.005) for _ in SEEDS]}
    return table(values)
