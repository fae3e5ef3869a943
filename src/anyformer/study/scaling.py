"""Loss against size, data and compute over the runs of studies, and what size a budget is best for.

N are parameters outside embeddings, D tokens that were read, C FLOPs of training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anyformer.errors import StudyError
from anyformer.study import powerlaw
from anyformer.study.powerlaw import Law, Number
from anyformer.study.reading import final, read
from anyformer.study.results import Results

N, D, C = "N", "D", "C"


@dataclass(frozen=True)
class Run:
    """A trained model as scaling sees it."""

    size: float
    tokens: float
    flops: float
    loss: float
    seed: int


@dataclass(frozen=True)
class Frontier:
    """The best size and number of tokens of budgets of compute, and N ∝ C^a, D ∝ C^b."""

    flops: tuple[float, ...]
    sizes: tuple[float, ...]
    tokens: tuple[float, ...]
    losses: tuple[float, ...]
    size_power: Number
    token_power: Number


@dataclass(frozen=True)
class Scaling:
    """All that was fitted; None where the runs don't allow it."""

    runs: tuple[Run, ...]
    size: Law | None  # at the most tokens
    data: Law | None  # of the largest size
    compute: Law | None  # of what no other run beats at its compute
    joint: Law | None  # E + A/N^α + B/D^β
    frontier: Frontier | None  # by parabolas over sizes of equal compute
    size_power: Number | None  # β / (α + β) of the joint law
    token_power: Number | None


def runs_of(results: Iterable[Results], score: str = "loss") -> list[Run]:
    """The runs of studies that are done, each variant at its best learning rate."""
    found: list[Run] = []
    for each in results:
        for arm in each.arms:
            for run in each.of(arm.name, read(each, arm.name).lr):
                value = final(run, score)
                if value is not None and np.isfinite(value):
                    last = run.points[-1]
                    size = float(arm.non_embedding)
                    found.append(Run(size, float(last.tokens), last.flops, value, run.seed))
    return found


def fit(
    results: Results | Sequence[Results] | Sequence[Run], draws: int = 200, score: str = "loss"
) -> Scaling:
    """Fit power laws over the runs of one study or of several, as of all panels of `scaling`."""
    given = [results] if isinstance(results, Results) else list(results)
    told = [r for r in given if isinstance(r, Results)]
    runs = runs_of(told, score) if told else [r for r in given if isinstance(r, Run)]
    if len(runs) < 4:
        raise StudyError(
            f"{len(runs)} runs are done: a power law needs 4 at least, of 3 sizes or numbers of "
            "tokens (anyformer study scaling)"
        )
    most, largest = max(r.tokens for r in runs), max(r.size for r in runs)
    joint = _law(runs, (N, D), draws)
    powers = _balance(joint) if joint is not None else (None, None)
    return Scaling(
        runs=tuple(runs),
        size=_law([r for r in runs if r.tokens > 0.97 * most], (N,), draws),
        data=_law([r for r in runs if r.size == largest], (D,), draws),
        compute=_law(best(runs), (C,), draws),
        joint=joint,
        frontier=frontier(runs, draws),
        size_power=powers[0],
        token_power=powers[1],
    )


def _law(runs: Sequence[Run], over: tuple[str, ...], draws: int) -> Law | None:
    """The law over some quantities; None with fewer than three values of one, or too few runs."""
    read = {N: [r.size for r in runs], D: [r.tokens for r in runs], C: [r.flops for r in runs]}
    few = any(len({f"{x:.2g}" for x in read[name]}) < 3 for name in over)
    if few or len(runs) < 2 + 2 * len(over):
        return None
    values = {name: np.array(read[name]) for name in over}
    return powerlaw.fit(values, np.array([r.loss for r in runs]), draws)


def _balance(joint: Law) -> tuple[Number, Number]:
    """How size and tokens grow with compute where a joint law is least: C ∝ N · D."""
    alpha, beta = joint.draws[:, 2], joint.draws[:, 4]
    middle = joint.theta[4] / (joint.theta[2] + joint.theta[4])
    parts = beta / (alpha + beta)
    parts = parts[np.isfinite(parts)]
    low, high = np.percentile(parts, [2.5, 97.5]) if len(parts) else (np.nan, np.nan)
    size = Number(float(middle), float(low), float(high))
    return size, Number(1 - size.value, 1 - size.high, 1 - size.low)


def best(runs: Sequence[Run]) -> list[Run]:
    """The runs whose size and tokens give the least mean loss for their compute."""
    cells = _cells(runs)
    found: list[Run] = []
    least = np.inf
    for _, mean, cell in sorted((cell[0].flops, _mean(cell), cell) for cell in cells):
        if mean < least:
            found, least = [*found, *cell], mean
    return found


def _cells(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of one size and number of tokens together."""
    cells: dict[tuple[float, float], list[Run]] = {}
    for run in sorted(runs, key=lambda r: (r.size, r.tokens, r.seed)):
        cells.setdefault((run.size, run.tokens), []).append(run)
    return list(cells.values())


def _mean(cell: Sequence[Run]) -> float:
    return float(np.mean([r.loss for r in cell]))


# ------------------------------------------------------------------ the frontier


def frontier(runs: Sequence[Run], draws: int = 200, seed: int = 0) -> Frontier | None:
    """The best size of each budget, by a parabola through the losses of sizes of equal compute.

    Between runs of a size log L goes straight over log C. Budgets whose best size is the smallest
    or the largest there is are left out: nothing brackets it. Intervals draw seeds of each cell
    anew, and budgets.
    """
    cells = _cells(runs)
    found = _optima(cells)
    if len(found) < 3:
        return None
    rng = np.random.default_rng(seed)
    powers: list[tuple[float, float]] = []
    for _ in range(draws):
        dealt = [[cell[i] for i in rng.integers(0, len(cell), len(cell))] for cell in cells]
        again = _optima(dealt)
        again = [again[i] for i in rng.integers(0, len(again), len(again))] if again else []
        if len({row[0] for row in again}) >= 3:
            powers.append(_powers(again))
    size, tokens = _powers(found)
    told = np.array(powers).reshape(-1, 2)
    number = lambda value, column: _interval(value, told[:, column])
    flops, sizes, read, losses = (tuple(float(row[i]) for row in found) for i in range(4))
    return Frontier(flops, sizes, read, losses, number(size, 0), number(tokens, 1))


def _interval(value: float, draws: np.ndarray) -> Number:
    if not len(draws):
        return Number(value, float("nan"), float("nan"))
    low, high = np.percentile(draws, [2.5, 97.5])
    return Number(value, float(min(low, value)), float(max(high, value)))


def _powers(rows: Sequence[tuple[float, float, float, float]]) -> tuple[float, float]:
    logs = np.log(np.array(rows)[:, :3])
    return (
        float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]),
        float(np.polyfit(logs[:, 0], logs[:, 2], 1)[0]),
    )


def _optima(cells: Sequence[Sequence[Run]]) -> list[tuple[float, float, float, float]]:
    """Budget, best size, its tokens and its loss, over budgets that three sizes or more cover."""
    by_size: dict[float, list[tuple[float, float]]] = {}
    cost: dict[float, float] = {}
    for cell in cells:
        first = cell[0]
        by_size.setdefault(first.size, []).append((np.log(first.flops), np.log(_mean(cell))))
        cost[first.size] = first.flops / first.tokens
    lines = {size: np.array(sorted(line)) for size, line in by_size.items() if len(line) > 1}
    if len(lines) < 3:
        return []
    low = min(line[0, 0] for line in lines.values())
    high = max(line[-1, 0] for line in lines.values())
    found: list[tuple[float, float, float, float]] = []
    prices = np.array(sorted(cost.items()))
    for budget in np.linspace(low, high, 24):
        at = [
            (np.log(size), float(np.interp(budget, line[:, 0], line[:, 1])))
            for size, line in sorted(lines.items())
            if line[0, 0] <= budget <= line[-1, 0]
        ]
        place = int(np.argmin([loss for _, loss in at])) if len(at) > 2 else 0
        if not 0 < place < len(at) - 1:
            continue
        x, y = np.array(at[place - 1 : place + 2]).T
        bend, slope, base = np.polyfit(x - x[1], y, 2)
        if bend <= 0:
            continue
        top = float(np.clip(-slope / (2 * bend), x[0] - x[1], x[2] - x[1]))
        size, loss = np.exp(x[1] + top), np.exp(bend * top**2 + slope * top + base)
        price = np.exp(np.interp(np.log(size), np.log(prices[:, 0]), np.log(prices[:, 1])))
        found.append(
            (float(np.exp(budget)), float(size), float(np.exp(budget) / price), float(loss))
        )
    return found


# ------------------------------------------------------------------ for people


def table(found: Scaling) -> list[tuple[str, str, str, str]]:
    """Rows of what was fitted: the law, its powers, its floor and what is left."""
    laws = {
        "L(N), at the most tokens": found.size,
        "L(D), of the largest size": found.data,
        "L(C), of the best runs": found.compute,
        "E + A/N^α + B/D^β": found.joint,
    }
    rows = [("law", "powers", "E", "left of log L")]
    for name, law in laws.items():
        if law is None:
            rows.append((name, "too few values", "", ""))
            continue
        powers = ", ".join(
            f"{letter} = {_told(p)}" for letter, p in zip("αβ", law.powers, strict=False)
        )
        rows.append((name, powers, _told(law.floor), f"{law.error:.2g} ({law.points} runs)"))
    for name, size, tokens in (
        ("joint law", found.size_power, found.token_power),
        ("parabolas", *((f.size_power, f.token_power) if (f := found.frontier) else (None,) * 2)),
    ):
        if size is not None and tokens is not None:
            powers = f"N ∝ C^{_told(size)}, D ∝ C^{_told(tokens)}"
            rows.append((f"best size for C, by {name}", powers, "", ""))
    return rows


def _told(number: Number) -> str:
    return f"{number.value:.3g} [{number.low:.3g}, {number.high:.3g}]"


def figure(found: Scaling, path: str | Path) -> Path:
    """Loss against compute, a line for each size, with the law and the frontier; PNG or SVG."""
    from anyformer.study.report.figures import render
    from anyformer.study.report.numbers import short

    def draw(axes: Any) -> None:
        plot = axes.loglog
        sizes = sorted({r.size for r in found.runs})
        for i, size in enumerate(sizes):
            cells = [c for c in _cells(found.runs) if c[0].size == size]
            colour = str(0.75 - 0.6 * i / max(len(sizes) - 1, 1))
            plot([c[0].flops for c in cells], [_mean(c) for c in cells], "o-", color=colour, ms=3)
        if found.compute is not None:
            ends = [r.flops for r in found.runs]
            x = np.geomspace(min(ends), max(ends), 60)
            plot(x, [found.compute(C=float(v)) for v in x], "--", color="tab:red", lw=1)
        if found.frontier is not None:
            plot(found.frontier.flops, found.frontier.losses, "*", color="tab:blue", ms=6)
        axes.xaxis.set_major_formatter(lambda value, _: short(value))
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        for level in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            level(lambda value, _: f"{value:.3g}")
        axes.set_xlabel("FLOPs of training")
        axes.set_ylabel("loss; darker: larger models")

    target = Path(path)
    target.write_bytes(render(draw, target.suffix.lstrip("."), keys={}, name="scaling"))
    return target
