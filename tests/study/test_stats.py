"""Comparisons: what is paired, what is corrected, and how often noise is taken for an effect."""

import dataclasses
import math
import random
import statistics

import pytest

from anyformer.errors import InputError
from anyformer.study.results import Point
from anyformer.study.stats import holm, interval, judge
from tests.study.fake import arm, changed, many, run, study, table

LR = 0.003


def _simulated(rng, effects, seeds=3, sd=0.01, shared=0.05, rates=(LR,)):
    """A study whose seeds shift all variants alike, with noise of its own for each run."""
    shift = [rng.gauss(0, shared) for _ in range(seeds)]
    return table(
        {
            name: {lr: [2 + effect + s + rng.gauss(0, sd) for s in shift] for lr in rates}
            for name, effect in effects.items()
        }
    )


def test_differences_are_paired_by_seed():
    found = judge(table({"a": {LR: [1.0, 2.0, 3.0]}, "b": {LR: [1.1, 2.3, 3.2]}})).comparisons[0]
    assert found.seeds == (1, 2, 3)
    assert found.differences == pytest.approx((0.1, 0.3, 0.2))
    assert found.mean == pytest.approx(0.2) and found.sd == pytest.approx(0.1)
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((0.2 - half, 0.2 + half))
    assert found.p == pytest.approx(0.0742, abs=1e-4)  # t = 3.4641 with 2 degrees of freedom
    assert found.half == pytest.approx(half)


def test_only_seeds_that_both_have_are_paired():
    found = judge(table({"a": {LR: [1.0, 2.0, None]}, "b": {LR: [None, 2.3, 3.2]}})).comparisons[0]
    assert found.seeds == (2,)
    assert found.differences == pytest.approx((0.3,))
    assert (found.sd, found.low, found.p, found.corrected) == (None, None, None, None)


@pytest.mark.parametrize("lower", [True, False])
def test_each_arm_has_its_own_best_rate(lower):
    low, high = [1.0, 1.1], [2.0, 2.1]
    results = table(
        {"a": {0.1: high, 0.2: low, 0.3: high}, "b": {0.1: low, 0.2: high, 0.3: [2, 2]}}
    )
    best = judge(dataclasses.replace(results, lower=lower)).best
    assert best == ({"a": 0.2, "b": 0.1} if lower else {"a": 0.1, "b": 0.2})


def test_rates_are_compared_over_seeds_that_they_share():
    values = {0.1: [1.0, 5.0], 0.2: [1.1, None], 0.3: [1.2, None]}
    assert judge(table({"a": values, "b": values})).best == {"a": 0.1, "b": 0.1}
    apart = {0.1: [1.0, None, None], 0.2: [None, 3.0, 3.0]}  # one seed says too little
    assert judge(table({"a": apart, "b": apart})).best == {"a": 0.2, "b": 0.2}


def test_a_rate_that_diverges_is_not_the_best():
    results = table({"a": {0.1: [2.0, 2.0], 0.2: [1.0, 1.0], 0.3: [3.0, 3.0]}})
    results = changed(results, "a", 2, 0.2, status="diverged")
    assert judge(results).best == {"a": 0.1}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_score_that_is_not_finite_has_diverged(value):
    found = judge(table({"a": {LR: [1.0, 2.0, 3.0]}, "b": {LR: [1.0, value, 3.1]}})).comparisons[0]
    assert found.verdict == "diverged" and found.diverged == (2,) and found.seeds == (1, 3)


def test_repeats_of_a_run_are_averaged_and_measured():
    results = table({"a": {LR: [1.0, 2.0]}, "b": {LR: [1.1, 2.2]}})
    again = [run("a", 1, LR, 1.2), run("a", 2, LR, 2.4)]
    results = dataclasses.replace(results, outcomes=(*results.outcomes, *again))
    found = judge(results)
    assert found.comparisons[0].differences == pytest.approx((0.0, 0.0))
    assert found.noise.repeats == pytest.approx(math.sqrt((0.02 + 0.08) / 2))
    assert found.noise.groups == 2


def test_a_variant_without_changes_repeats_the_baseline():
    results = table({"a": {LR: [1.0, 2.0]}, "twin": {LR: [1.2, 2.2]}})
    spec = {"depth": 4}
    results = dataclasses.replace(results, arms=(arm("a", spec=spec), arm("twin", spec=spec)))
    assert judge(results).noise.repeats == pytest.approx(statistics.stdev([1.0, 1.2]))
    other = (arm("a", spec=spec), arm("twin", spec=spec, steps=2000))
    assert judge(dataclasses.replace(results, arms=other)).noise.repeats is None


def test_noise_of_the_baseline():
    noise = judge(table({"a": {LR: [1.0, 2.0, 3.0]}})).noise
    assert (noise.mean, noise.sd, noise.seeds) == (2.0, 1.0, 3)
    assert judge(table({"a": {LR: [1.0]}})).noise.sd is None
    assert judge(table({"a": {LR: [None]}})).noise.mean is None


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.01, None, 0.04]) == pytest.approx([0.03, None, 0.08])  # one is yet to come
    assert holm([]) == []


def test_interval_of_a_mean():
    assert interval([1.0]) is None
    assert interval([1.0, 3.0]) == pytest.approx((2 - 12.7062, 2 + 12.7062), abs=1e-3)


def test_a_score_that_no_run_has():
    results = dataclasses.replace(table({"a": {LR: [1.0]}}), score="los")
    with pytest.raises(InputError, match="did you mean 'loss'"):
        judge(results)


def test_recovered_share():
    values = {"deep": [1.0, 1.1, 1.2], "flat": [2.0, 2.1, 2.2], "tied": [1.2, 1.32, 1.38]}
    results = table({n: {LR: v} for n, v in values.items()}, anchors=("flat", "deep"))
    found = judge(results)
    tied = found.of("tied")
    assert tied.recovered == pytest.approx(0.8)
    assert tied.share[0] < 0.8 < tied.share[1]
    assert found.gap.wide and found.gap.size == pytest.approx(-1)
    assert found.of("flat").recovered is None  # an anchor has no share of its own gap
    assert found.of("deep") is None


def test_no_share_of_a_gap_within_noise():
    values = {"deep": [1.0, 1.1, 1.2], "flat": [1.1, 1.2, 1.3], "tied": [1.05, 1.17, 1.2]}
    results = table({n: {LR: v} for n, v in values.items()}, anchors=("flat", "deep"))
    found = judge(results)
    assert not found.gap.wide and found.of("tied").recovered is None


def test_noise_is_seldom_taken_for_an_effect():
    rng = random.Random(1)
    names = {name: 0.0 for name in ("base", "b", "c", "d", "e")}
    studies = [judge(_simulated(rng, names)) for _ in range(400)]
    wrong = sum(any(c.verdict in ("helps", "hurts") for c in s.comparisons) for s in studies)
    assert wrong / 400 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


def test_nor_with_a_grid_of_rates():
    rng = random.Random(2)
    names = {name: 0.0 for name in ("base", "b", "c", "d", "e")}
    studies = [judge(_simulated(rng, names, rates=(0.1, 0.2, 0.3))) for _ in range(400)]
    found = [
        c.corrected is not None and c.corrected < 0.05 for s in studies for c in s.comparisons
    ]  # edges aside, which make most of them inconclusive
    wrong = sum(any(found[i : i + 4]) for i in range(0, 1600, 4))
    assert wrong / 400 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize("lower", [True, False])
def test_an_effect_is_found(lower):
    rng = random.Random(3)
    effects = {"base": 0.0, "worse": 0.2, "better": -0.2, "same": 0.0}
    studies = [
        judge(dataclasses.replace(_simulated(rng, effects), lower=lower)) for _ in range(100)
    ]
    told = [{c.variant: c.verdict for c in s.comparisons} for s in studies]
    helps, hurts = ("better", "worse") if lower else ("worse", "better")
    assert sum(t[helps] == "helps" for t in told) >= 85
    assert sum(t[hurts] == "hurts" for t in told) >= 85
    assert not any(t[helps] == "hurts" or t[hurts] == "helps" for t in told)


def test_pairing_finds_what_seeds_would_hide():
    rng = random.Random(4)
    results = _simulated(rng, {"base": 0.0, "better": -0.1}, seeds=5, sd=0.005, shared=0.3)
    found = judge(results)
    assert found.noise.sd > 0.1
    assert found.comparisons[0].verdict == "helps"


def test_a_study_that_looks_real():
    found = {c.variant: c.verdict for c in judge(study()).comparisons}
    assert found == {
        "rotary": "helps", "glu": "helps", "recursion": "hurts", "t5 bias": "no evidence"
    }  # fmt: skip
    assert len(judge(many()).comparisons) == 24


def test_other_scores_can_be_judged():
    results = dataclasses.replace(study(), score="accuracy", lower=False)
    assert judge(results).of("rotary").verdict == "helps"
    assert isinstance(results.outcomes[0].points[0], Point)
