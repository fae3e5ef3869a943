"""Every verdict, word for word."""

import dataclasses

import pytest

from anyformer.study.stats import judge
from anyformer.study.verdicts import decimals, number, p_words
from tests.study.fake import changed, run, table

LR = 0.003
BASE = [2.0, 2.1, 2.2]


def _words(other, base=None, variant="b", **more):
    base = base if isinstance(base, dict) else {LR: base or BASE}
    other = other if isinstance(other, dict) else {LR: other}
    found = judge(table({"a": base, variant: other}, **more)).of(variant)
    return found.verdict, found.words


def test_helps_and_hurts():
    better, worse = [1.979, 2.077, 2.181], [2.021, 2.123, 2.219]
    assert _words(better, match="compute") == (
        "helps", "helps by 0.021 ± 0.005 at equal compute (p = 0.003)"
    )  # fmt: skip
    assert _words(worse) == ("hurts", "hurts by 0.021 ± 0.005 at equal steps (p = 0.003)")
    assert _words(worse, lower=False)[0] == "helps"
    assert _words(better, lower=False)[0] == "hurts"


def test_no_evidence():
    assert _words([2.01, 2.09, 2.21]) == (
        "no evidence", "no evidence of a difference (+0.003 ± 0.029, p = 0.667)"
    )  # fmt: skip
    assert _words(BASE) == (
        "no evidence",
        "no evidence of a difference (+0.000 ± 0.000, p = 1.000)",
    )


def test_too_few_seeds():
    assert _words([1.9], [2.0]) == (
        "inconclusive",
        "inconclusive: 1 paired seed, at least 2 are needed (measured: −0.100)",
    )
    verdict, words = _words([None], [None])
    assert (verdict, words) == (
        "inconclusive",
        "inconclusive: 0 paired seeds, at least 2 are needed; so far 0 of 1 runs; "
        "the baseline so far 0 of 1 runs",
    )


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        (
            (3.0, 2.5, 2.0),
            "its best learning rate 0.3 is the largest of its grid: extend it upwards",
        ),
        ((2.0, 2.5, 3.0), "its best learning rate 0.1 is the smallest of its grid: extend it down"),
    ],
)
def test_best_rate_at_the_edge(rates, told):
    grid = {lr: [v, v + 0.11, v + 0.21] for lr, v in zip((0.1, 0.2, 0.3), rates, strict=True)}
    base = {0.1: [3, 3, 3], 0.2: BASE, 0.3: [3, 3, 3]}
    verdict, words = _words(grid, base)
    assert verdict == "inconclusive" and told in words and "measured: +0.007" in words
    swapped, words = _words(base, grid)
    assert swapped == "inconclusive" and told.replace("its best", "the baseline's best") in words
    assert judge(table({"a": base, "b": grid})).of("b").edge


def test_a_rate_beyond_which_runs_diverge_is_no_edge():
    grid = {0.1: [3, 3, 3], 0.2: [1.9, 1.99, 2.12], 0.3: [1, 1, 1]}
    base = {0.1: [3, 3, 3], 0.2: BASE, 0.3: [3, 3, 3]}
    results = table({"a": base, "b": grid})
    for seed in (1, 3):
        results = changed(results, "b", seed, 0.3, status="diverged", points=())
    found = judge(results).of("b")
    assert found.verdict == "helps" and not found.edge and found.diverged == ()
    assert found.words.endswith(
        "; diverged at learning rate 0.3 (seeds 1, 3), left out of the means"
    )


def test_one_rate_has_no_edge():
    assert not judge(table({"a": {LR: BASE}, "b": {LR: BASE}})).of("b").edge


def test_anchors_too_near():
    values = {"deep": BASE, "flat": [2.1, 2.2, 2.3], "tied": [2.5, 2.61, 2.7]}
    results = table({n: {LR: v} for n, v in values.items()}, anchors=("flat", "deep"))
    for c in judge(results).comparisons:
        assert c.verdict == "inconclusive"
        assert (
            "the anchors flat and deep differ by 0.10, under 5 times the seeds' spread (0.10)"
            in (c.words)
        )
    wide = dataclasses.replace(results, anchors=None)
    assert judge(wide).of("tied").verdict == "hurts"


def test_anchors_without_runs():
    values = {"deep": BASE, "flat": [None, None, None], "tied": [2.5, 2.61, 2.7]}
    results = table({n: {LR: v} for n, v in values.items()}, anchors=("flat", "deep"))
    assert "anchors flat and deep have too few runs" in judge(results).of("tied").words


def test_differences_without_noise():
    assert _words([2.5, 2.6, 2.7]) == (
        "inconclusive",
        "inconclusive: the difference is the same for every seed, so its noise isn't known "
        "(measured: +0.50 ± 0.00)",
    )


def test_diverged_is_never_averaged_away():
    results = table({"a": {LR: BASE}, "b": {LR: [1.0, 1.1, 1.2]}})
    two = changed(results, "b", 1, LR, status="diverged")
    two = changed(two, "b", 2, LR, status="diverged")
    found = judge(two).of("b")
    assert (found.verdict, found.diverged) == ("diverged", (1, 2))
    assert found.words == (
        "diverged (seeds 1, 2) at its best learning rate 0.003; without them −1.00 over seed 3"
    )
    three = judge(changed(two, "b", 3, LR, status="diverged")).of("b")
    assert three.words == "diverged (seeds 1, 2, 3): no run ended well"
    assert three.mean is None


def test_a_baseline_that_diverged():
    results = changed(table({"a": {LR: BASE}, "b": {LR: [1, 1, 2]}}), "a", 2, LR, status="diverged")
    found = judge(results).of("b")
    assert found.verdict == "inconclusive"
    assert found.words.startswith("inconclusive: the baseline diverged (seed 2) (measured: ")


def test_unfinished_and_failed_runs_are_told():
    results = table({"a": {LR: BASE}, "b": {LR: [1.8, 1.91, 2.0]}, "c": {LR: [1.8, None, None]}})
    results = changed(results, "c", 2, LR, status="running")
    results = changed(results, "c", 3, LR, status="failed", reason="no memory")
    found = judge(results)
    assert found.of("b").words.startswith("helps by 0.197 ± 0.014 at equal steps (p < 0.001)")
    assert found.of("c").words == (
        "inconclusive: 1 paired seed, at least 2 are needed (measured: −0.200); "
        "so far 1 of 3 runs; failed at learning rate 0.003 (seed 3)"
    )
    more = dataclasses.replace(results, outcomes=(*results.outcomes, run("b", 4, LR, None)))
    assert judge(more).of("b").words.endswith("; so far 3 of 4 runs")


def test_numbers():
    assert [decimals(v) for v in (0.006, 0.014, 0.03, 1.2, 7, 300, 0.0)] == [3, 3, 2, 1, 0, 0, 3]
    assert number(-0.5, 2) == "−0.50" and number(0.5, 1, signed=True) == "+0.5"
    assert p_words(0.0004) == "p < 0.001" and p_words(0.0314) == "p = 0.031"


@pytest.mark.parametrize("lower, said", [(True, "may help"), (False, "may hurt")])
def test_between_one_and_five_percent_it_only_may(lower, said):
    values = {"plain": [1.0, 1.1, 1.2], "new": [0.96, 1.04, 1.12]}
    found = judge(table({n: {LR: v} for n, v in values.items()}, lower=lower)).of("new")
    assert found.verdict == said and found.words.startswith(f"{said} by 0.06 ± 0.05")
    assert found.corrected == pytest.approx(0.035, abs=0.001)
