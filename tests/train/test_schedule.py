"""Learning rates are functions of the step."""

import math

import pytest

from anyformer.train.schedule import factor
from anyformer.train.settings import Constant, Cosine, InverseRoot, LinearDecay, Trapezoid

STEPS = 100
CASES = [
    (Constant(warmup=4), {0: 0.25, 3: 1.0, 99: 1.0}),
    (LinearDecay(warmup=20), {0: 0.05, 19: 1.0, 20: 1.0, 60: 0.5, 100: 0.0, 500: 0.0}),
    (LinearDecay(final=0.5), {0: 1.0, 50: 0.75, 100: 0.5}),
    (Cosine(warmup=20, final=0.1), {9: 0.5, 20: 1.0, 60: 0.55, 100: 0.1, 101: 0.1}),
    (InverseRoot(warmup=25), {0: 0.04, 24: 1.0, 99: 0.5, 399: 0.25}),
    (Trapezoid(warmup=10, decay=0.2), {4: 0.5, 10: 1.0, 79: 1.0, 80: 1.0, 90: 0.5, 100: 0.0}),
    (Trapezoid(decay=0.0), {0: 1.0, 99: 1.0}),
]


@pytest.mark.parametrize(("schedule", "points"), CASES)
def test_a_schedule_goes_through_its_points(schedule, points):
    for step, wanted in points.items():
        assert math.isclose(factor(schedule, step, STEPS), wanted, abs_tol=1e-12), step


@pytest.mark.parametrize("schedule", [case[0] for case in CASES])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_rate_is_never_outside_its_range(schedule, steps):
    assert all(0.0 <= factor(schedule, step, steps) <= 1.0 for step in range(3 * steps))
