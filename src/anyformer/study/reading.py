"""One variant's runs read for comparison: its best learning rate and its score for each seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from anyformer.errors import InputError, known_or_raise
from anyformer.study.results import Outcome, Results


@dataclass(frozen=True)
class Reading:
    """A variant at its best learning rate; which of its runs diverged, failed or wait."""

    variant: str
    lr: float | None  # the best; None: no run has ended well
    values: dict[int, float]  # the final score for each seed at that rate
    diverged: dict[float, tuple[int, ...]]  # seeds that diverged, for each rate
    failed: dict[float, tuple[int, ...]]  # seeds that failed, for each rate
    edge: Literal["", "smallest", "largest"]  # where in a grid of several rates the best one lies
    ended: int  # runs that are done or diverged
    planned: int

    @property
    def lost(self) -> tuple[int, ...]:
        """Seeds that diverged at the best rate; of any rate where none ended well."""
        if self.lr is not None:
            return self.diverged.get(self.lr, ())
        return tuple(sorted({seed for seeds in self.diverged.values() for seed in seeds}))


def final(outcome: Outcome, score: str) -> float | None:
    """The last score of a run that is done; None where it isn't."""
    if outcome.status != "done" or not outcome.points:
        return None
    scores = outcome.points[-1].scores
    return scores[known_or_raise(score, scores, "score", InputError)]


def diverged(outcome: Outcome, score: str) -> bool:
    """Whether a run diverged: it says so, or it ended with a score that isn't finite."""
    value = final(outcome, score)
    return outcome.status == "diverged" or (value is not None and not math.isfinite(value))


def finals(results: Results, variant: str, lr: float) -> dict[int, float]:
    """The final score of a variant for each seed at a rate, finite ones only; repeats averaged."""
    found: dict[int, list[float]] = {}
    for outcome in results.of(variant, lr):
        value = final(outcome, results.score)
        if value is not None and math.isfinite(value):
            found.setdefault(outcome.seed, []).append(value)
    return {seed: statistics.fmean(values) for seed, values in sorted(found.items())}


def read(results: Results, variant: str) -> Reading:
    """A variant's runs, read at the learning rate whose mean final score is best."""
    runs = results.of(variant)
    rates = sorted({run.lr for run in runs})
    lost = [run for run in runs if diverged(run, results.score)]
    failed = [run for run in runs if run.status == "failed"]
    by_rate = {lr: finals(results, variant, lr) for lr in rates}
    best = _best(by_rate, _seeds(lost), results.lower)
    ended = sum(run.status in ("done", "diverged") for run in runs)
    return Reading(
        variant=variant,
        lr=best,
        values=by_rate[best] if best is not None else {},
        diverged=_seeds(lost),
        failed=_seeds(failed),
        edge=_edge(best, rates),
        ended=ended,
        planned=len(runs) or len(results.seeds) * len(results.rates),
    )


def _seeds(runs: Iterable[Outcome]) -> dict[float, tuple[int, ...]]:
    found: dict[float, set[int]] = {}
    for run in runs:
        found.setdefault(run.lr, set()).add(run.seed)
    return {lr: tuple(sorted(seeds)) for lr, seeds in sorted(found.items())}


def promising(results: Results, variant: str) -> float | None:
    """The rate to go on with: fewest seeds diverged, then the best mean of the seeds that it has.

    It may have been run with fewer seeds than another one. None where no run has ended well.
    """
    lost = _seeds(run for run in results.of(variant) if diverged(run, results.score))
    rates = {run.lr for run in results.of(variant)}
    values = {lr: finals(results, variant, lr).values() for lr in rates}
    sign = 1 if results.lower else -1
    order = lambda lr: (len(lost.get(lr, ())), sign * statistics.fmean(values[lr]), lr)
    return min((lr for lr in sorted(rates) if values[lr]), key=order, default=None)


def _best(
    by_rate: dict[float, dict[int, float]], lost: dict[float, tuple[int, ...]], lower: bool
) -> float | None:
    """The best of the rates that were run with most seeds and at which the fewest diverged."""
    found = {lr: values for lr, values in by_rate.items() if values}
    if not found:
        return None
    ended = {lr: len(values) + len(lost.get(lr, ())) for lr, values in found.items()}
    found = {lr: values for lr, values in found.items() if ended[lr] == max(ended.values())}
    fewest = min(len(lost.get(lr, ())) for lr in found)
    found = {lr: values for lr, values in found.items() if len(lost.get(lr, ())) == fewest}
    common = set.intersection(*(set(values) for values in found.values()))
    sign = 1 if lower else -1

    def mean(lr: float) -> float:
        chosen = [value for seed, value in found[lr].items() if seed in common or not common]
        return sign * statistics.fmean(chosen)

    return min(found, key=mean)


def _edge(best: float | None, rates: list[float]) -> Literal["", "smallest", "largest"]:
    if best is None or len(rates) < 2:
        return ""
    return {rates[0]: "smallest", rates[-1]: "largest"}.get(best, "")  # type: ignore[return-value]
