"""Noise measured over all variants together: what three seeds of one variant can't tell alone.

Arms of one study are trained alike, so their runs scatter alike. What is left of the scores after
the means of arms and of seeds is one deviation with (arms − 1)(seeds − 1) degrees of freedom. An
arm that scatters more than such arms would is taken out.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anyformer.study.student import beta

ALARM = 0.05  # of studies whose arms scatter alike, those in which any variant is taken out

Values = Mapping[int, float]  # the score for each seed


@dataclass(frozen=True)
class Pool:
    """The deviation of a run beside its arm and its seed, over the arms that share it."""

    sd: float
    freedom: int
    arms: tuple[str, ...]  # it was measured on
    seeds: tuple[int, ...]
    apart: tuple[str, ...] = ()  # arms whose runs scatter more


def pooled(arms: Mapping[str, Values], baseline: str) -> Pool | None:
    """The pool of some arms; None where no two of them have two seeds in common.

    A baseline that scatters harms every comparison: it alone is tested without a correction.
    """
    inside = _complete(arms)
    apart: list[str] = []
    while inside is not None and len(inside.arms) > 2:
        chosen = {name: arms[name] for name in inside.arms}
        tests = {name: 1 if name == baseline else len(chosen) for name in chosen}
        odds = {name: _odds(arms[name], name, chosen) * tests[name] for name in chosen}
        worst = min(odds, key=lambda name: odds[name])
        if odds[worst] >= ALARM:
            break
        apart.append(worst)
        inside = _complete({name: v for name, v in arms.items() if name not in apart})
    if inside is None:
        return None
    chosen = {name: arms[name] for name in inside.arms}
    rest = [name for name in arms if name not in chosen and name not in apart]  # they lack seeds
    late = [n for n in rest if _odds(arms[n], n, chosen) * (len(chosen) + 1) < ALARM]
    return replace(inside, apart=(*apart, *late))


def _complete(arms: Mapping[str, Values]) -> Pool | None:
    """The pool over complete seeds; arms that lack many are left out where that gains freedom."""
    names = sorted(arms, key=lambda name: -len(arms[name]))
    best: tuple[int, int] | None = None
    for many in range(2, len(names) + 1):
        free = (many - 1) * (len(_common(arms, names[:many])) - 1)
        if free > 0 and (best is None or free >= best[0]):
            best = free, many
    if best is None:
        return None
    free, many = best
    chosen = tuple(name for name in arms if name in names[:many])
    seeds = _common(arms, chosen)
    return Pool((_squares(arms, chosen, seeds) / free) ** 0.5, free, chosen, seeds)


def _common(arms: Mapping[str, Values], names: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted(set.intersection(*(set(arms[name]) for name in names))))


def _squares(arms: Mapping[str, Values], names: Sequence[str], seeds: Sequence[int]) -> float:
    """The sum of squares that is left after the means of arms and of seeds."""
    rows = [[arms[name][seed] for seed in seeds] for name in names]
    means = [statistics.fmean(row) for row in rows]
    columns = [statistics.fmean(column) for column in zip(*rows, strict=True)]
    whole = statistics.fmean(means)
    return sum(
        (value - mean - column + whole) ** 2
        for row, mean in zip(rows, means, strict=True)
        for value, column in zip(row, columns, strict=True)
    )


def _odds(mine: Values, name: str, arms: Mapping[str, Values]) -> float:
    """How likely an arm scatters so much about the mean of the others if it is as they are.

    The contrast with their mean is independent of what is left of them, so the ratio of variances
    follows Fisher's F.
    """
    others = {n: values for n, values in arms.items() if n != name}
    rest = _complete(others)
    if rest is None:
        return 1.0
    seeds = [seed for seed in rest.seeds if seed in mine]
    if len(seeds) < 2 or rest.sd == 0:
        return 1.0
    contrasts = [mine[s] - statistics.fmean(others[n][s] for n in rest.arms) for s in seeds]
    ratio = statistics.variance(contrasts) / ((1 + 1 / len(rest.arms)) * rest.sd**2)
    return above(ratio, len(seeds) - 1, rest.freedom)


def above(ratio: float, first: float, second: float) -> float:
    """The probability that a ratio of variances with these degrees of freedom is greater."""
    return beta(second / (second + first * ratio), second / 2, first / 2)
