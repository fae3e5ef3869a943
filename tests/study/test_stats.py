"""Comparisons: what is paired, what is corrected, and how often noise is taken for an effect."""

import dataclasses
import math
import random
import statistics

import pytest

from anyformer.errors import InputError
from anyformer.study.pool import above
from anyformer.study.reading import promising, read
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


def _wrong(rng, names, odd=None, seeds=3, studies=400):
    """The share of studies of variants that change nothing in which any is said to."""
    wrong = sure = 0
    for _ in range(studies):
        results = _simulated(rng, names, seeds)
        if odd is not None:
            for run in results.of(odd):
                value = run.points[-1].scores["loss"] + rng.gauss(0, 0.02)  # 5 times the variance
                results = changed(
                    results, odd, run.seed, LR, points=(Point(1, 1, 1, 1, {"loss": value}),)
                )
        verdicts = {c.verdict for c in judge(results).comparisons}
        wrong += bool(verdicts & {"helps", "hurts", "may help", "may hurt"})
        sure += bool(verdicts & {"helps", "hurts"})
    assert sure <= wrong / 2
    return wrong / studies


NAMES = {name: 0.0 for name in ("base", "b", "c", "d", "e")}
SLACK = 2 * math.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize("odd", [None, "c"])
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_noise_is_seldom_taken_for_an_effect(odd, seeds):
    assert _wrong(random.Random(1), NAMES, odd, seeds) <= 0.05 + SLACK


def test_nor_where_the_baseline_scatters_more():
    assert (
        _wrong(random.Random(1), NAMES, "base") <= 0.08 + SLACK
    )  # an upper bound is not kept here


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
    effects = {"base": 0.0, "worse": 0.05, "better": -0.05, "same": 0.0, "other": 0.0}
    studies = [
        judge(dataclasses.replace(_simulated(rng, effects), lower=lower)) for _ in range(100)
    ]
    told = [{c.variant: c.verdict for c in s.comparisons} for s in studies]
    helps, hurts = ("better", "worse") if lower else ("worse", "better")
    assert sum(t[helps] in ("helps", "may help") for t in told) >= 85  # 5 deviations; 39 by plain
    assert sum(t[hurts] in ("hurts", "may hurt") for t in told) >= 85  # paired t-tests
    assert sum(t[helps] == "helps" for t in told) >= 70
    assert not any("hurt" in t[helps] or "help" in t[hurts] for t in told)


def test_an_effect_is_found_beside_a_variant_that_scatters():
    rng, found = random.Random(5), 0
    for _ in range(100):
        results = _simulated(
            rng, {"base": 0.0, "better": -0.05, "same": 0.0, "wild": 0.0, "e": 0.0}
        )
        for seed, shift in zip((1, 2, 3), (-0.3, 0.3, 0.0), strict=True):
            results = changed(
                results, "wild", seed, LR, points=(Point(1, 1, 1, 1, {"loss": 2 + shift}),)
            )
        judged = judge(results)
        found += judged.of("better").verdict == "helps" and judged.pool.apart == ("wild",)
    assert found >= 75


def test_the_noise_of_all_arms_together():
    values = {"a": [1.0, 2.0, 3.0], "b": [1.1, 2.3, 3.2], "c": [1.0, 2.1, 2.9]}
    judged = judge(table({n: {LR: v} for n, v in values.items()}))
    rows = list(values.values())
    columns = [statistics.fmean(c) for c in zip(*rows, strict=True)]
    squares = sum(
        (v - statistics.fmean(r) - m + statistics.fmean(columns)) ** 2
        for r in rows
        for v, m in zip(r, columns, strict=True)
    )
    assert judged.pool.sd == pytest.approx(math.sqrt(squares / 4))
    assert judged.pool.freedom == 4 and judged.pool.arms == ("a", "b", "c")
    found = judged.of("c")
    sd = math.sqrt(2) * judged.pool.sd
    half = 2.776445 * sd / math.sqrt(3)
    assert (found.pooled, found.freedom) == (True, 4)
    assert (found.low, found.high) == pytest.approx((found.mean - half, found.mean + half))
    own = interval(found.differences)
    assert (found.own_low, found.own_high) == pytest.approx(own)
    assert found.own_p == pytest.approx(1.0)


def test_an_interval_is_never_narrower_than_its_own_differences_say():
    values = {"a": [1.0, 2.0, 3.0], "b": [1.1, 2.3, 3.2], "c": [1.0, 2.1, 2.95]}
    found = judge(table({n: {LR: v} for n, v in values.items()})).of("b")
    assert found.half == pytest.approx(2.776445 * found.sd / math.sqrt(3))


def test_an_arm_that_scatters_is_taken_out_and_named():
    values = {n: [2.0 + i, 2.1 + i, 2.2 + i * 1.001] for i, n in enumerate("abcd")}
    values["wild"] = [1.0, 3.0, 5.0]
    judged = judge(table({n: {LR: v} for n, v in values.items()}))
    wild, other = judged.of("wild"), judged.of("b")
    assert judged.pool.apart == ("wild",) and "wild" not in judged.pool.arms
    assert not wild.pooled and wild.freedom == 2 and wild.p == wild.own_p
    assert "its seeds scatter more than those of others" in wild.words
    assert other.pooled and "scatter" not in other.words


def test_a_baseline_that_scatters_leaves_each_to_its_own_seeds():
    values = {"wild": [1.0, 3.0, 5.0]}
    values |= {n: [2.0 + i, 2.1 + i, 2.2 + i * 1.001] for i, n in enumerate("abcd")}
    judged = judge(table({n: {LR: v} for n, v in values.items()}))
    assert judged.pool.apart == ("wild",)
    assert not any(c.pooled for c in judged.comparisons)
    assert "the baseline's seeds scatter more" in judged.of("a").words


def test_seeds_that_are_missing():
    rng = random.Random(6)
    row = lambda n: [2 + rng.gauss(0, 0.01) for _ in range(n)] + [None] * (3 - n)
    values = {n: {LR: row(3)} for n in "abcd"} | {"late": {LR: row(2)}, "later": {LR: row(1)}}
    judged = judge(table(values))
    assert judged.pool.arms == ("a", "b", "c", "d") and judged.pool.freedom == 6
    late = judged.of("late")
    assert late.pooled and late.seeds == (1, 2) and late.freedom == 6
    assert judged.of("later").p is None
    crossed = {"a": {LR: [None, 2.0, 2.1]}, "b": {LR: [2.0, 2.1, None]}, "c": {LR: [2, None, 2]}}
    judged = judge(table(crossed))
    assert judged.pool is None and not any(c.pooled for c in judged.comparisons)


def test_an_arm_that_repeats_the_baseline_is_not_in_the_pool():
    row = [2.0, 2.1, 2.23]
    values = {"a": row, "twin": row, "c": [2.1, 2.2, 2.31]}
    judged = judge(table({n: {LR: v} for n, v in values.items()}))
    assert judged.pool.arms == ("a", "c") and judged.of("twin").p == 1.0


@pytest.mark.parametrize(
    ("ratio", "first", "second", "wanted"),
    [(5.1433, 2, 6, 0.05), (10.9248, 2, 6, 0.01), (3.0069, 4, 16, 0.05), (1.0, 3, 3, 0.5)],
)
def test_fishers_f(ratio, first, second, wanted):
    assert above(ratio, first, second) == pytest.approx(wanted, rel=1e-3)


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


def test_a_rate_counts_once_it_has_as_many_seeds_as_any():
    """One that was lucky with the first seed alone isn't read, but may be worth going on with."""
    found = table({"a": {0.001: [2.0, 2.1, 7.0], 0.003: [2.2, None, None]}})
    assert read(found, "a").lr == 0.001 and promising(found, "a") == 0.003
    lost = changed(found, "a", 1, 0.003, status="diverged")
    assert promising(lost, "a") == 0.001
    assert promising(table({"a": {0.001: [None]}}), "a") is None
