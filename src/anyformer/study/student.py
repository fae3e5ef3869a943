"""Student's t distribution from the incomplete beta function; standard library only."""

from __future__ import annotations

import functools
import math

_TINY = 1e-300
_EPSILON = 1e-16


def beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for 0 ≤ x ≤ 1 and positive a and b."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1 - beta(1 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(scale + a * math.log(x) + b * math.log1p(-x)) * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of I_x(a, b) by Lentz's method."""
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            total *= c * d
        if abs(c * d - 1) < _EPSILON * 10:
            break
    return total


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def two_sided(t: float, freedom: float) -> float:
    """The probability of a value as far from nought as t, on either side."""
    return beta(freedom / (freedom + t * t), freedom / 2, 0.5)


@functools.cache
def quantile(probability: float, freedom: float) -> float:
    """The t below which a value lies with a probability strictly between 0 and 1."""
    if not 0 < probability < 1:
        raise ValueError(f"a probability between 0 and 1 was expected, not {probability}")
    if probability < 0.5:
        return -quantile(1 - probability, freedom)
    outside, high = 2 * (1 - probability), 1.0
    while two_sided(high, freedom) > outside:
        high *= 2
    low = 0.0
    for _ in range(100):
        middle = (low + high) / 2
        if two_sided(middle, freedom) > outside:
            low = middle
        else:
            high = middle
    return (low + high) / 2
