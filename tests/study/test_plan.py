"""From a study to its runs: what is equal, what names a run, what is refused."""

from dataclasses import replace

import pytest

from anyformer.errors import AnyformerError, StudyError
from anyformer.study import plan
from anyformer.study.nodes import (
    FlopBudget,
    Match,
    StepBudget,
    TokenBudget,
    Variant,
    check,
)
from tests.study import tiny


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.text(tmp_path_factory.mktemp("data"))


def _planned(study, home):
    ground = plan.ground(study, home)
    arms = plan.arms(study, ground, plan.specs(study, ground))
    return ground, arms, plan.trials(study, ground, arms)


def test_runs_of_a_study(data, tmp_path):
    ground, arms, trials = _planned(tiny.study(data, rates=(1e-3, 2e-3)), tmp_path)
    assert len(trials) == 2 * 2 * 2 and len({t.key for t in trials}) == 8
    assert ground.context == 16 and {a.steps for a in arms} == {12}
    assert arms[0].changes == () and any("rotary" in line.lower() for line in arms[1].changes)


def test_the_longest_runs_of_a_seed_start_first(data, tmp_path):
    deeper = Variant(name="deeper", words=("depth=5",))
    _, arms, trials = _planned(
        tiny.study(data, variants=(*tiny.study(data).variants, deeper)), tmp_path
    )
    assert max(arms, key=lambda arm: arm.flops).name == "deeper"
    seeds = [t.seed for t in trials]
    assert seeds == sorted(seeds)  # those of a seed beside each other
    assert [t.variant for t in trials[:: len(arms)]] == ["deeper"] * len({*seeds})


def test_a_run_is_named_by_what_its_numbers_depend_on(data, tmp_path):
    study = tiny.study(data)
    _, _, first = _planned(study, tmp_path)
    keys = lambda s: [t.key for t in _planned(s, tmp_path)[2]]
    same = replace(study, settings=replace(study.settings, workers=2, log_every=3), title="Other")
    assert keys(same) == [t.key for t in first]
    for other in (
        replace(study, settings=replace(study.settings, batch=8)),
        replace(study, budget=StepBudget(steps=13)),
        replace(study, rates=(1e-2,)),
        replace(study, rows=8),
    ):
        assert not {*keys(other)} & {t.key for t in first}


def test_variants_of_a_seed_see_the_same_batches_with_first_weights_of_their_own(data, tmp_path):
    _, _, trials = _planned(tiny.study(data), tmp_path)
    told = [(t.seed, t.content["settings"]["seed"], t.content["settings"]["draw"]) for t in trials]
    assert all(seed == of for seed, of, _ in told)
    assert len({draw for *_, draw in told}) == 4


def test_budgets_become_steps(data, tmp_path):
    steps = lambda budget: [a.steps for a in _planned(tiny.study(data, budget=budget), tmp_path)[1]]
    assert steps(TokenBudget(tokens=64 * 20)) == [20, 20]
    deeper = (Variant(name="plain"), Variant(name="deep", words=("stack.depth=4",)))
    study = tiny.study(data, variants=deeper, budget=FlopBudget(flops=1e9))
    _, (plain, deep), _ = _planned(study, tmp_path)
    assert plain.steps > deep.steps
    assert plain.steps * plain.flops == pytest.approx(deep.steps * deep.flops, rel=0.1)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"budget": StepBudget(steps=1)}, "the budget allows 1 steps of a run, fewer than its 2"),
        ({"variants": (Variant(name="a"),)}, "at least two variants"),
        ({"variants": (Variant(name="a"), Variant(name="a"))}, "two variants are called 'a'"),
        ({"variants": (Variant(name="a"), Variant(name="b"))}, "are the same model"),
        ({"variants": (Variant(name="a"), Variant(name="b", words=("rotry",)))}, "did you mean"),
        (
            {"variants": (Variant(name="a"), Variant(name="b", base="bert"))},
            "one objective for all",
        ),
        ({"seeds": ()}, "at least one"),
        ({"seeds": (1, 1)}, "give different ones"),
        ({"rates": (1.0, 1.0)}, "give different ones"),
        ({"anchors": ("plain", "deep")}, "name two of plain, rotary"),
        ({"data": ("gone.txt",)}, "gone.txt is not there"),
        (
            {
                "variants": (Variant(name="a"), Variant(name="b", words=("stack.depth=40",))),
                "match": Match(by="feedforward"),
            },
            "b: no feedforward gives",
        ),
    ],
)
def test_a_study_that_cant_be_is_refused(data, tmp_path, more, told):
    with pytest.raises(AnyformerError, match=told):
        _planned(check(replace(tiny.study(data), **more)), tmp_path)


def test_twins_are_allowed_where_they_are_asked_for(data, tmp_path):
    twins = (Variant(name="a"), Variant(name="b"))
    _, _, trials = _planned(tiny.study(data, variants=twins, twins=True), tmp_path)
    assert len({t.key for t in trials}) == 4  # first weights of their own


def test_a_text_without_rows_to_validate_on(tmp_path):
    (tmp_path / "short.txt").write_text("a b c")
    with pytest.raises(AnyformerError):
        _planned(tiny.study(tmp_path / "short.txt"), tmp_path / "home")
    assert issubclass(StudyError, AnyformerError)
