"""Curves over seeds as numbers: mean and band of a variant's runs at its best learning rate."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from anyformer.study.judgement import Judgement
from anyformer.study.reading import diverged
from anyformer.study.results import Outcome, Point, Results
from anyformer.study.stats import interval

SEEN = 2000  # points of a curve that are drawn
Item = TypeVar("Item")
Axis = Literal["tokens", "flops", "seconds"]
Band = Literal["range", "interval"]
BANDS = {
    "range": "from the least to the greatest of the seeds",
    "interval": "the 95\N{NO-BREAK SPACE}% t-interval of the mean over seeds",
}


@dataclass(frozen=True)
class Curve:
    """A variant's mean score and its band, and runs that are in neither."""

    variant: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    seeds: int
    strays: tuple[Stray, ...] = ()


@dataclass(frozen=True)
class Stray:
    """A run that diverged or isn't done: drawn by itself, in no mean."""

    seed: int
    diverged: bool
    x: tuple[float, ...]
    y: tuple[float, ...]


def scores(results: Results) -> list[str]:
    """The scores that runs have, that of the verdicts first."""
    names = {name for run in results.outcomes for point in run.points for name in point.scores}
    return [results.score, *sorted(names - {results.score})]


def curve(
    results: Results, judged: Judgement, variant: str, score: str, axis: Axis, band: Band = "range"
) -> Curve | None:
    """A variant's curve of a score; None where there is nothing to draw."""
    runs = [run for run in results.of(variant, judged.best.get(variant)) if run.points]
    whole = [r for r in runs if r.status == "done" and not diverged(r, results.score)]
    strays = tuple(_stray(r, results, score, axis) for r in runs if r not in whole)
    strays = tuple(stray for stray in strays if stray.x)
    rows = _rows(whole, score, axis)
    if not rows and not strays:
        return None
    x, mean, low, high = ([], [], [], [])
    for places, values in rows:
        x.append(statistics.fmean(places))
        mean.append(statistics.fmean(values))
        bounds = interval(values) if band == "interval" else (min(values), max(values))
        low.append((bounds or values * 2)[0])
        high.append((bounds or values * 2)[1])
    return Curve(variant, tuple(x), tuple(mean), tuple(low), tuple(high), len(whole), strays)


def _place(point: Point, axis: Axis) -> float | None:
    return {"tokens": point.tokens, "flops": point.flops, "seconds": point.seconds}[axis]


def _pairs(run: Outcome, score: str, axis: Axis) -> dict[int, tuple[float, float]]:
    found = {}
    for point in run.points:
        place, value = _place(point, axis), point.scores.get(score)
        if place is not None and value is not None and math.isfinite(value):
            found[point.step] = (float(place), value)
    return found


def _rows(runs: Sequence[Outcome], score: str, axis: Axis) -> list[tuple[list[float], list[float]]]:
    """Places and values over seeds, at each step that all of these runs have."""
    found = [_pairs(run, score, axis) for run in runs]
    steps = _thinned(sorted(set.intersection(*map(set, found)))) if found else []
    return [([f[s][0] for f in found], [f[s][1] for f in found]) for s in steps]


def _thinned(found: list[Item]) -> list[Item]:
    """At most as many as can be seen, evenly apart, the first and the last among them."""
    if len(found) <= SEEN:
        return found
    return [found[round(i * (len(found) - 1) / (SEEN - 1))] for i in range(SEEN)]


def _stray(run: Outcome, results: Results, score: str, axis: Axis) -> Stray:
    pairs = _thinned(list(_pairs(run, score, axis).values()))
    x, y = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    return Stray(run.seed, diverged(run, results.score), x, y)


def window(curves: Sequence[Curve]) -> tuple[float, float] | None:
    """The scores worth seeing: those after the first fifth, and a margin."""
    end = max((x for c in curves for x in c.x), default=0.0)
    late = [
        value
        for c in curves
        for x, low, high in zip(c.x, c.low, c.high, strict=True)
        for value in (low, high)
        if x >= end / 5
    ]
    if not late or min(late) == max(late):
        return None
    margin = 0.06 * (max(late) - min(late))
    return min(late) - margin, max(late) + margin
