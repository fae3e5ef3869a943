"""Each objective trains a tiny model of its family on real text, along the curve that is kept.

The default run follows some curves to their end and the others over their first part.
`python -m tests.golden.renew` writes the curves anew, after a change that is meant to move them.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from anyformer.objectives.registry import OBJECTIVES
from tests.golden.cases import CASES, TEACHER, WINDOWS, begun, curves, trained

GOLDEN = json.loads((Path(__file__).parent / "curves.json").read_text("utf-8"))
# Sums of float32 come in another order on another kind of CPU: without any AVX these curves move
# by half a hundredth at most (see renew.py).
TOLERANCE = 0.01
LONGER = 4  # times the steps, in the slow run
PARTS = 2  # of five, where the default run doesn't follow a curve to its end
WHOLE = ("causal", TEACHER, "span-corruption", "replaced-token", "distillation")
OTHERS = [name for name in CASES if name not in WHOLE]
FINETUNED = {
    *("classification", "token-classification", "question-answering", "multiple-choice"),
    *("summarisation", "image-classification", "captioning"),
}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """What the masked objective trains; its golden test and distillation share it."""
    return trained(CASES[TEACHER], tmp_path_factory.mktemp("teacher"))


def _assert_follows(found, name):
    wanted = GOLDEN[name]["curves"]
    assert found.keys() == wanted.keys()
    for term, numbers in found.items():
        kept = wanted[term][: len(numbers)]
        assert numbers == pytest.approx(kept, rel=TOLERANCE, abs=0.005), term


@pytest.mark.parametrize("name", OTHERS)
def test_an_objective_begins_along_its_curve(name, tmp_path, monkeypatch):
    found = begun(CASES[name], tmp_path, PARTS, monkeypatch)
    assert {len(numbers) for numbers in found.values()} == {PARTS}
    _assert_follows(found, name)


@pytest.mark.parametrize(
    "name", [*WHOLE, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_an_objective_learns_along_its_curve(name, request, tmp_path):
    case = CASES[name]
    taught = request.getfixturevalue("teacher") if name in (TEACHER, "distillation") else None
    folder = taught[0].folder if taught is not None else None
    run, entropies = taught if name == TEACHER else trained(case, tmp_path, folder)
    found = curves(run)
    for term, share in case.below.items():
        assert found[term][-1] < share * entropies[term], term
    assert {len(numbers) for numbers in found.values()} == {WINDOWS}
    _assert_follows(found, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name != "distillation"])
def test_an_objective_learns_more_in_more_time(name, tmp_path):
    case = CASES[name]
    run, entropies = trained(replace(case, steps=LONGER * case.steps), tmp_path)
    found = curves(run)
    for term, share in case.below.items():
        assert found[term][-1] < 0.95 * share * entropies[term], term


def test_every_pretraining_objective_has_a_curve():
    plans = {type(case.plan) for case in CASES.values()}
    assert {n for n, kind in OBJECTIVES.items() if kind not in plans} == FINETUNED
    assert GOLDEN.keys() == CASES.keys()
