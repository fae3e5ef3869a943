"""Which charts a report has: what each shows, in words and as a table too."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from anyformer.study.judgement import Judgement
from anyformer.study.reading import finals
from anyformer.study.report import figures
from anyformer.study.report.colours import Style, styles
from anyformer.study.report.curves import BANDS, Axis, Band, Curve, curve, scores
from anyformer.study.report.numbers import short
from anyformer.study.results import Outcome, Results
from anyformer.study.verdicts import amount, rate

AXES: dict[Axis, tuple[str, str, str]] = {  # the tab, the words and the axis
    "tokens": ("tokens", "tokens read in training", "tokens"),
    "flops": ("FLOPs", "floating-point operations of training", "FLOPs of training"),
    "seconds": ("time", "time of training, evaluation aside", "time"),
}


@dataclass(frozen=True)
class Chart:
    """One chart: how it is drawn, what it says, and its numbers."""

    name: str  # of its file and its anchor
    tab: str
    title: str
    caption: str
    words: str  # for those who can't see it
    draw: figures.Draw
    keys: Mapping[str, Style]  # the legend; empty: the chart names its rows itself
    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    high: float = figures.HIGH


def charts(results: Results, judged: Judgement, band: Band = "range") -> dict[str, list[Chart]]:
    """The charts of a report by section; sections without data have none."""
    look = styles(results, judged)
    return {
        "differences": _forest(results, judged, look),
        "curves": _curves(results, judged, look, band),
        "costs": _paretos(results, judged, look),
        "rates": _rates(results, judged, look),
    }


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _better(results: Results) -> str:
    return "lower is better" if results.lower else "higher is better"


def _forest(results: Results, judged: Judgement, look: Mapping[str, Style]) -> list[Chart]:
    found = judged.comparisons
    if not found:
        return []
    sd = judged.noise.sd
    grey = "" if sd is None else f" Grey: the baseline's own deviation over seeds, ±{sd:.2g}."
    good = "Left" if results.lower else "Right"
    drawn = [(c.variant, c.mean, c.half, c.differences) for c in found]
    rows = tuple(
        (c.variant, c.mean, c.low, c.high, ", ".join(f"{d:+.4g}" for d in c.differences))
        for c in found
    )
    return [
        Chart(
            name="differences",
            tab="differences",
            title=f"Differences from {results.baseline}",
            caption=f"Paired differences of {results.score} from {results.baseline} and their "
            f"95\N{NO-BREAK SPACE}% intervals; small dots are seeds. {good} of the line is "
            f"better.{grey}",
            words=f"Differences of {results.score} from {results.baseline}: "
            + "; ".join(f"{c.variant} {amount(c)}" for c in found),
            draw=figures.draw_forest(drawn, look, sd, f"{results.score}, less the baseline's"),
            keys={},
            header=("variant", "difference", "low", "high", "by seed"),
            rows=rows,
            high=1.0 + 0.34 * len(found),
        )
    ]


def _curves(
    results: Results, judged: Judgement, look: Mapping[str, Style], band: Band
) -> list[Chart]:
    beside = [name for name in scores(results)[1:] if "@" not in name][:4]  # no curve: at the end
    wanted: list[tuple[str, Axis]] = [(score, "tokens") for score in beside]
    wanted = [*((results.score, axis) for axis in AXES), *wanted]
    found = (_curve(results, judged, look, band, score, axis) for score, axis in wanted)
    return [chart for chart in found if chart is not None]


def _curve(
    results: Results,
    judged: Judgement,
    look: Mapping[str, Style],
    band: Band,
    score: str,
    axis: Axis,
) -> Chart | None:
    lines = [curve(results, judged, arm.name, score, axis, band) for arm in results.arms]
    found = [line for line in lines if line is not None]
    if not found:
        return None
    tab, words, label = AXES[axis]
    main = score == results.score
    ends = "; ".join(f"{c.variant} {c.mean[-1]:.4g}" for c in found if c.mean)
    return Chart(
        name=f"curves-{axis}" if main else f"curves-score-{scores(results).index(score)}",
        tab=tab if main else score,
        title=f"{_capital(score)} against {words}",
        caption=f"{_capital(score)} on the validation rows against {words}; each variant at its "
        f"best learning rate. Line: the mean over seeds; band: {BANDS[band]}.{_astray(found)} "
        "What lies outside the window in the first fifth isn't shown.",
        words=f"Curves of {score} against {words}. At the end: {ends}",
        draw=figures.draw_curves(found, look, label, score),
        keys={c.variant: look[c.variant] for c in found},
        header=("variant", words, "mean", "low", "high", "seeds"),
        rows=tuple(
            (c.variant, short(x, 4), mean, low, high, c.seeds)
            for c in found
            for x, mean, low, high in zip(c.x, c.mean, c.low, c.high, strict=True)
        ),
    )


def _astray(curves: list[Curve]) -> str:
    strays = [stray for c in curves for stray in c.strays]
    lost, others = any(s.diverged for s in strays), any(not s.diverged for s in strays)
    told = " Thin lines ending in × are runs that diverged: in no mean." if lost else ""
    return told + (" Thin lines ending in a dot are runs not done: in no mean." if others else "")


def _trained(results: Results, variant: str, lr: float) -> float:
    """The FLOPs that a variant's runs took; by its counts where no run says."""
    runs: list[Outcome] = [run for run in results.of(variant, lr) if run.status == "done"]
    known = [run.points[-1].flops for run in runs if run.points]
    arm = results.arm(variant)
    return statistics.fmean(known) if known else 3 * arm.flops * arm.steps * arm.tokens


def _paretos(results: Results, judged: Judgement, look: Mapping[str, Style]) -> list[Chart]:
    values = {n: list(r.values.values()) for n, r in judged.readings.items() if r.values}
    arms = {arm.name: arm for arm in results.arms if arm.name in values}
    if len(arms) < 2:
        return []
    costs = {
        "parameters": ("parameters", {n: a.parameters for n, a in arms.items()}),
        "non-embedding": (
            "parameters, embeddings aside",
            {n: a.non_embedding for n, a in arms.items()},
        ),
        "applied": (
            "parameters times how often they are applied",
            {n: a.applied for n, a in arms.items()},
        ),
        "FLOPs": (
            "FLOPs of training",
            {n: _trained(results, n, judged.best[n]) for n in arms},
        ),
    }
    return [
        _pareto(results, look, tab, words, {n: (float(c), values[n]) for n, c in cost.items()})
        for tab, (words, cost) in costs.items()
    ]


def _pareto(
    results: Results,
    look: Mapping[str, Style],
    tab: str,
    words: str,
    points: Mapping[str, tuple[float, list[float]]],
) -> Chart:
    means = {name: (cost, statistics.fmean(seeds)) for name, (cost, seeds) in points.items()}
    best = front(list(means.values()), results.lower)
    on = {name for name, point in means.items() if point in best}
    return Chart(
        name=f"costs-{tab.lower()}",
        tab=tab,
        title=f"{_capital(results.score)} against {words}",
        caption=f"Final {results.score} ({_better(results)}) against {words}: means, and lines "
        "from the least to the greatest of the seeds. Dashed: what none beats at its cost.",
        words=f"Final {results.score} against {words}: "
        + "; ".join(f"{n} {short(c)}, {mean:.4g}" for n, (c, mean) in means.items()),
        draw=figures.draw_pareto(points, look, words, results.score, best),
        keys={name: look[name] for name in points},
        header=("variant", words, results.score, "least", "greatest", "on the front"),
        rows=tuple(
            (n, short(c, 4), means[n][1], min(seeds), max(seeds), "yes" if n in on else "no")
            for n, (c, seeds) in points.items()
        ),
    )


def front(points: list[tuple[float, float]], lower: bool) -> list[tuple[float, float]]:
    """The points that none beats at their cost or less, by cost."""
    sign = 1 if lower else -1
    found: list[tuple[float, float]] = []
    for cost, value in sorted(points, key=lambda point: (point[0], sign * point[1])):
        if not found or sign * value < sign * found[-1][1]:
            found.append((cost, value))
    return found


def _rates(results: Results, judged: Judgement, look: Mapping[str, Style]) -> list[Chart]:
    grids = {arm.name: sorted({run.lr for run in results.of(arm.name)}) for arm in results.arms}
    if max(map(len, grids.values()), default=0) < 2:
        return []
    values = {
        name: {lr: list(finals(results, name, lr).values()) for lr in grid}
        for name, grid in grids.items()
    }
    lost = {name: tuple(r.diverged) for name, r in judged.readings.items()}
    rows = tuple(
        (
            name,
            rate(lr),
            statistics.fmean(seeds) if seeds else None,
            len(seeds),
            ", ".join(map(str, judged.readings[name].diverged.get(lr, ()))),
            "best" if judged.best.get(name) == lr else "",
        )
        for name, found in values.items()
        for lr, seeds in found.items()
    )
    best = "; ".join(f"{name} {rate(lr)}" for name, lr in judged.best.items())
    return [
        Chart(
            name="rates",
            tab="learning rates",
            title=f"{_capital(results.score)} against the learning rate",
            caption=f"Final {results.score} ({_better(results)}) at each learning rate: means over "
            "seeds, seeds as dots, the best rate of each variant ringed, × at the top where a run "
            "diverged. A best rate at either end of its grid makes a comparison inconclusive.",
            words=f"Final {results.score} against the learning rate. The best: {best}",
            draw=figures.draw_rates(values, lost, judged.best, look, results.score),
            keys=look,
            header=("variant", "learning rate", "mean", "seeds", "diverged seeds", "choice"),
            rows=rows,
        )
    ]
