"""Student's t: values of printed tables, symmetries, and scipy where it is installed."""

import itertools
import math

import pytest

from anyformer.study.student import beta, quantile, two_sided

TABLE = {  # degrees of freedom: the 0.975 and the 0.995 quantile, as printed tables give them
    1: (12.706, 63.657),
    2: (4.303, 9.925),
    3: (3.182, 5.841),
    4: (2.776, 4.604),
    5: (2.571, 4.032),
    9: (2.262, 3.250),
    30: (2.042, 2.750),
    120: (1.980, 2.617),
}


@pytest.mark.parametrize("freedom", TABLE)
def test_quantiles_of_printed_tables(freedom):
    found = quantile(0.975, freedom), quantile(0.995, freedom)
    assert found == pytest.approx(TABLE[freedom], abs=6e-4)


def test_one_degree_of_freedom_is_cauchy():
    for t in (0.01, 0.5, 1, 3, 100, 1e6):
        assert two_sided(t, 1) == pytest.approx(1 - 2 * math.atan(t) / math.pi, rel=1e-9, abs=1e-12)


def test_two_degrees_of_freedom_have_a_closed_form():
    for t in (0.0, 0.3, 2.92, 4.303, 50):
        assert two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9)


def test_many_degrees_of_freedom_are_normal():
    assert quantile(0.975, 1e7) == pytest.approx(1.959964, abs=1e-5)


def test_ends_and_symmetry():
    assert two_sided(0, 5) == 1
    assert two_sided(math.inf, 5) == 0
    assert beta(0, 2, 3) == 0 and beta(1, 2, 3) == 1
    assert quantile(0.5, 3) == pytest.approx(0, abs=1e-12)
    assert quantile(0.1, 3) == -quantile(0.9, 3)
    for x in (0.1, 0.4, 0.9):
        assert beta(x, 2.5, 0.5) == pytest.approx(1 - beta(1 - x, 0.5, 2.5))


@pytest.mark.parametrize("probability", [0.0, 1.0, -1.0, 2.0, math.nan])
def test_no_quantile_outside_of_nought_and_one(probability):
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile(probability, 3)


def test_equal_to_scipy():
    stats = pytest.importorskip("scipy.stats", reason="scipy, the oracle, is not installed")
    for freedom, t in itertools.product((1, 2, 3, 7, 40, 500), (0.01, 0.7, 2, 4.3, 12, 300)):
        assert two_sided(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-9)
    for freedom, p in itertools.product((1, 2, 4, 19, 300), (0.6, 0.9, 0.975, 0.9999)):
        assert quantile(p, freedom) == pytest.approx(stats.t.ppf(p, freedom), rel=1e-9)
