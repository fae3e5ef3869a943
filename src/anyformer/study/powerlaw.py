"""Power laws fitted to losses: a sum of a floor and falling terms, robust, with intervals.

log L = log Σ exp(term), each term linear in the parameters: of E + A·x^-α the terms are e and
a - α·log x. Huber's loss on log L (as in arXiv:2203.15556, approach 3) is minimised by Levenberg
and Marquardt's steps from the best starts of a grid. It turns linear at 1.345 deviations of what is
left, which are measured by the median of a first fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from anyformer.study.student import quantile

DELTA = 1e-3  # beyond which residuals of log L count linearly in a first fit
FLOOR = np.log(1e-6)
STEPS = 200
SLOPES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5)
FLOORS = (1e-3, 0.3, 0.6, 0.8, 0.9, 0.95, 0.99)  # of the least loss


@dataclass(frozen=True)
class Number:
    """An estimate and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Law:
    """E + Σ A_k · x_k^-α_k over the quantities that it names."""

    over: tuple[str, ...]
    floor: Number
    scales: tuple[Number, ...]  # A of each, of the quantity itself
    powers: tuple[Number, ...]  # α of each
    error: float  # root mean square of what is left of log L
    points: int
    draws: np.ndarray  # (draws, 1 + 2k) of e, and of log A and α of each
    theta: np.ndarray  # (1 + 2k,) the estimate in the same order

    def __call__(self, **at: float) -> float:
        """The loss at some quantities."""
        return float(_loss(self.theta, {name: np.array([at[name]]) for name in self.over})[0])


def fit(
    values: Mapping[str, np.ndarray], losses: np.ndarray, draws: int = 200, seed: int = 0
) -> Law:
    """Fit a law over one quantity or several, each (P,), to losses (P,).

    Intervals are percentiles over `draws` fits to the law with what was left of each point dealt
    out anew, scaled for what the fit took of it, and as much wider as Student's t is than a normal
    distribution.
    """
    middle = {name: float(np.exp(np.log(x).mean())) for name, x in values.items()}
    near = {name: x / middle[name] for name, x in values.items()}
    y = np.log(losses)
    best = min((_refined(t, near, y) for t in _starts(near, losses)), key=lambda t: t[1])[0]
    bend = max(DELTA, 2 * float(np.median(np.abs(y - np.log(_loss(best, near))))))  # 1.345 · 1.483
    best = _refined(best, near, y, bend)[0]
    told = np.log(_loss(best, near))
    left = (y - told) / np.sqrt(1 - _leverage(best, near))
    rng = np.random.default_rng(seed)
    dealt = (told + rng.choice(left - left.mean(), len(y)) for _ in range(draws))
    found = np.array([_refined(best, near, again, bend)[0] for again in dealt]).reshape(
        -1, len(best)
    )
    moved = np.array([_whole(t, [middle[name] for name in near]) for t in (best, *found)])
    wide = quantile(0.975, max(len(y) - len(best), 1)) / quantile(0.975, 1e6)
    numbers = [_number(moved[0, i], moved[1:, i], wide) for i in range(len(best))]
    exp = lambda n: Number(*(float(np.exp(v)) for v in (n.value, n.low, n.high)))
    return Law(
        over=tuple(values),
        floor=exp(numbers[0]),
        scales=tuple(exp(n) for n in numbers[1::2]),
        powers=tuple(numbers[2::2]),
        error=float(np.sqrt(np.mean((y - told) ** 2))),
        points=len(y),
        draws=moved[1:],
        theta=moved[0],
    )


def _number(value: float, draws: np.ndarray, wide: float) -> Number:
    if not len(draws):
        return Number(float(value), float("nan"), float("nan"))
    low, high = (wide * (end - value) for end in np.percentile(draws, [2.5, 97.5]))
    return Number(float(value), float(value + min(low, 0)), float(value + max(high, 0)))


def _leverage(theta: np.ndarray, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """How much of each point's own residual a fit takes away, below 1: (P,)."""
    q = np.linalg.qr(_slopes(theta, values))[0]
    return np.minimum((q**2).sum(1), 0.9)


def _whole(theta: np.ndarray, middle: list[float]) -> np.ndarray:
    """Parameters of quantities over their middle as those of the quantities themselves."""
    moved = theta.copy()
    for k, size in enumerate(middle):
        moved[1 + 2 * k] += theta[2 + 2 * k] * np.log(size)
    return moved


def _terms(theta: np.ndarray, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """The logarithms of the floor and of each falling term: (1 + k, P)."""
    rows = [np.full_like(next(iter(values.values())), theta[0])]
    for k, x in enumerate(values.values()):
        rows.append(theta[1 + 2 * k] - theta[2 + 2 * k] * np.log(x))
    return np.clip(np.array(rows), -50, 50)


def _loss(theta: np.ndarray, values: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.exp(_terms(theta, values)).sum(0)


def _slopes(theta: np.ndarray, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """How log L changes with each parameter: (P, 1 + 2k)."""
    parts = np.exp(_terms(theta, values))
    share = parts / parts.sum(0)
    columns = [share[0]]
    for k, x in enumerate(values.values()):
        columns += [share[1 + k], -share[1 + k] * np.log(x)]
    return np.array(columns).T


def _cost(left: np.ndarray, bend: float = DELTA) -> float:
    size = np.abs(left)
    return float(np.where(size <= bend, size**2 / 2, bend * (size - bend / 2)).sum())


def _starts(
    values: Mapping[str, np.ndarray], losses: np.ndarray, many: int = 6
) -> list[np.ndarray]:
    """The best of a grid of floors and powers, with scales by least squares."""
    found: list[tuple[float, np.ndarray]] = []
    for floor, *powers in product(FLOORS, *[SLOPES] * len(values)):
        low = floor * losses.min()
        falls = np.array([x**-p for x, p in zip(values.values(), powers, strict=True)]).T
        scales = np.linalg.lstsq(falls, losses - low, rcond=None)[0]
        logs = np.log(np.maximum(scales, 1e-9))
        pairs = np.array([v for pair in zip(logs, powers, strict=True) for v in pair])
        theta = np.array([np.log(low), *pairs])
        found.append((_cost(np.log(losses) - np.log(_loss(theta, values))), theta))
    return [theta for _, theta in sorted(found, key=lambda pair: pair[0])[:many]]


def _refined(
    theta: np.ndarray, values: Mapping[str, np.ndarray], y: np.ndarray, bend: float = DELTA
) -> tuple[np.ndarray, float]:
    """The parameters after damped Gauss-Newton steps, and what they cost."""
    left = np.log(_loss(theta, values)) - y
    cost, damping = _cost(left, bend), 1e-3
    for _ in range(STEPS):
        slopes = _slopes(theta, values)
        weights = np.minimum(1.0, bend / np.maximum(np.abs(left), 1e-300))
        square = (slopes * weights[:, None]).T @ slopes
        down = (slopes * weights[:, None]).T @ left
        damped = square + damping * np.diag(np.diag(square) + 1e-12)
        step = np.linalg.lstsq(damped, down, rcond=None)[0]
        trial = theta - step
        trial[0] = max(trial[0], FLOOR)
        trial_left = np.log(_loss(trial, values)) - y
        trial_cost = _cost(trial_left, bend)
        if trial_cost < cost:
            small = cost - trial_cost <= 1e-9 * cost
            theta, left, cost, damping = trial, trial_left, trial_cost, max(damping / 5, 1e-12)
            if small:
                break
        else:
            damping *= 5
            if damping > 1e8:
                break
    return theta, cost
