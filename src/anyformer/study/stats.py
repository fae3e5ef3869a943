"""Whether a variant differs from the baseline beyond noise: paired differences over seeds.

Within a seed all variants see the same batches, so differences are taken by seed, each arm at its
own best learning rate. Intervals and p-values are Student's, against the noise of all arms together
(study/pool.py); p-values are corrected over variants after Holm (1979).
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anyformer.study.judgement import GATE, LEVEL, Comparison, Gap, Judgement, Noise
from anyformer.study.pool import Pool, pooled
from anyformer.study.reading import Reading, final, read
from anyformer.study.results import Arm, Results
from anyformer.study.student import quantile, two_sided
from anyformer.study.verdicts import pronounce

__all__ = ["Comparison", "Gap", "Judgement", "Noise", "holm", "interval", "judge"]

_ROUNDING = 1e-12  # of the scores' size: a spread under it is arithmetic, not noise


def judge(results: Results) -> Judgement:
    """Compare each variant with the baseline; verdicts in words."""
    readings = {arm.name: read(results, arm.name) for arm in results.arms}
    gap = _gap(readings, results.anchors)
    pool = _pool(readings, results.baseline)
    found = [
        _held(_compare(readings, results.baseline, arm.name, gap), readings, pool)
        for arm in results.arms
        if arm.name != results.baseline
    ]
    corrected = holm([c.p for c in found])
    found = [replace(c, corrected=p) for c, p in zip(found, corrected, strict=True)]
    judged = Judgement(
        comparisons=tuple(found),
        noise=_noise(results, readings[results.baseline]),
        best={name: r.lr for name, r in readings.items() if r.lr is not None},
        readings=readings,
        gap=gap,
        pool=pool,
    )
    return replace(judged, comparisons=tuple(pronounce(c, judged, results) for c in found))


def holm(values: Sequence[float | None]) -> list[float | None]:
    """P-values corrected by Holm's step-down; ones not known yet count as tests to come."""
    known = sorted((p, i) for i, p in enumerate(values) if p is not None)
    corrected: list[float | None] = [None] * len(values)
    least = 0.0
    for rank, (p, i) in enumerate(known):
        least = max(least, min(1.0, (len(values) - rank) * p))
        corrected[i] = least
    return corrected


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % t-interval of a mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean, half = statistics.fmean(values), _half(statistics.stdev(values), len(values))
    return mean - half, mean + half


def _half(sd: float, n: int, freedom: int | None = None) -> float:
    return quantile(1 - LEVEL / 2, freedom or n - 1) * sd / math.sqrt(n)


def _compare(
    readings: Mapping[str, Reading], baseline: str, variant: str, gap: Gap | None
) -> Comparison:
    mine, theirs = readings[variant], readings[baseline]
    seeds = tuple(sorted(set(mine.values) & set(theirs.values)))
    differences = tuple(mine.values[s] - theirs.values[s] for s in seeds)
    found = Comparison(
        variant=variant,
        baseline=baseline,
        lr=mine.lr,
        seeds=seeds,
        differences=differences,
        mean=statistics.fmean(differences) if differences else None,
        edge=bool(mine.edge or theirs.edge),
        diverged=mine.lost,
    )
    if len(seeds) < 2:
        return found
    recovered, share = _recovered(readings, variant, gap)
    sd = statistics.stdev(differences)
    return replace(found, sd=sd, recovered=recovered, share=share)


def _pool(readings: Mapping[str, Reading], baseline: str) -> Pool | None:
    """The noise of all arms together; one that repeats the baseline has none of its own."""
    first = readings[baseline].values
    arms = {n: r.values for n, r in readings.items() if n == baseline or not _twin(r.values, first)}
    return pooled({name: values for name, values in arms.items() if len(values) > 1}, baseline)


def _twin(mine: Mapping[int, float], first: Mapping[int, float]) -> bool:
    shared = set(mine) & set(first)
    return bool(shared) and all(abs(mine[s] - first[s]) <= _size([mine[s]]) for s in shared)


def _size(values: Iterable[float]) -> float:
    """What rounding may do to values."""
    return _ROUNDING * max(abs(value) for value in values)


def _held(c: Comparison, readings: Mapping[str, Reading], pool: Pool | None) -> Comparison:
    """A comparison held against noise: its own, and the pool's where both arms share that."""
    if c.mean is None or c.sd is None:
        return c
    n, mean, own = len(c.seeds), c.mean, c.sd
    rounding = _size(readings[name].values[s] for name in (c.variant, c.baseline) for s in c.seeds)
    half, p = _half(own, n), _p(mean, own, n, n - 1, rounding)
    low, high = mean - half, mean + half
    c = replace(c, own_low=low, own_high=high, own_p=p, low=low, high=high, p=p, freedom=n - 1)
    if pool is None or {c.variant, c.baseline} & {*pool.apart}:
        return c
    # never less than its own differences show: an arm that scatters more is seldom told in time
    sd, free = max(math.sqrt(2) * pool.sd, own), pool.freedom
    half, p = _half(sd, n, free), _p(mean, sd, n, free, rounding)
    return replace(c, low=mean - half, high=mean + half, p=p, freedom=free, pooled=True)


def _p(mean: float, sd: float, n: int, freedom: int, rounding: float) -> float | None:
    """The p-value of a paired mean; none where the differences are equal, and not nought."""
    if sd > rounding:
        return two_sided(mean / sd * math.sqrt(n), freedom)
    return 1.0 if abs(mean) <= rounding else None


def _gap(readings: Mapping[str, Reading], anchors: tuple[str, str] | None) -> Gap | None:
    if anchors is None:
        return None
    first, second = (readings[name].values for name in anchors)
    both = sorted(set(first) & set(second))
    spreads = [statistics.stdev(v.values()) for v in (first, second) if len(v) > 1]
    if not both or not spreads:
        return Gap(anchors=anchors, size=None, spread=None, wide=False)
    size, spread = statistics.fmean(second[s] - first[s] for s in both), max(spreads)
    wide = size != 0 and abs(size) >= GATE * spread
    return Gap(anchors=anchors, size=size, spread=spread, wide=wide)


def _recovered(
    readings: Mapping[str, Reading], variant: str, gap: Gap | None
) -> tuple[float | None, tuple[float, float] | None]:
    """A variant's share of the anchors' gap and its interval, after the ratio estimator."""
    if gap is None or not gap.wide or variant in gap.anchors:
        return None, None
    first, second = (readings[name].values for name in gap.anchors)
    mine = readings[variant].values
    seeds = set(mine) & set(first) & set(second)
    gained, whole = [mine[s] - first[s] for s in seeds], [second[s] - first[s] for s in seeds]
    if len(seeds) < 2 or not sum(whole):
        return None, None
    ratio = sum(gained) / sum(whole)
    left = [g - ratio * w for g, w in zip(gained, whole, strict=True)]
    half = _half(statistics.stdev(left), len(seeds)) / abs(statistics.fmean(whole))
    return ratio, (ratio - half, ratio + half)


def _noise(results: Results, baseline: Reading) -> Noise:
    values = list(baseline.values.values())
    groups = [group for group in _repeats(results) if len(group) > 1]
    free = sum(len(group) - 1 for group in groups)
    squares = sum(statistics.variance(group) * (len(group) - 1) for group in groups)
    return Noise(
        mean=statistics.fmean(values) if values else None,
        sd=statistics.stdev(values) if len(values) > 1 else None,
        seeds=len(values),
        repeats=math.sqrt(squares / free) if free else None,
        groups=len(groups),
    )


def _repeats(results: Results) -> Iterable[list[float]]:
    """Final scores of runs that ought to be equal: same model, budget, seed and rate."""
    groups: dict[tuple[str, int, float], list[float]] = {}
    for arm in results.arms:
        for run in results.of(arm.name):
            value = final(run, results.score)
            if value is not None and math.isfinite(value):
                groups.setdefault((_model(arm, results), run.seed, run.lr), []).append(value)
    return groups.values()


def _model(arm: Arm, results: Results) -> str:
    """What tells models apart: variants without changes are the baseline again."""
    same = not arm.changes and arm.spec == results.arm(results.baseline).spec
    name = results.baseline if same else arm.name
    return json.dumps([name, arm.steps, arm.tokens])
