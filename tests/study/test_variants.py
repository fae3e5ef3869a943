"""Variants that are matched to others, spend what others spend, and are evaluated otherwise."""

from dataclasses import replace

import pytest

from anyformer.errors import StudyError
from anyformer.study import engine, plan, work
from anyformer.study.nodes import FlopBudget, Match, StepBudget, Study, Variant, check
from anyformer.study.reading import read
from anyformer.study.results import Arm, from_json, to_json
from anyformer.study.run import Standing, begun, opened, run
from anyformer.study.stats import judge
from anyformer.train.settings import Settings
from tests.study import fake
from tests.study.stand import ground

WIDTH = Match(on="parameters", within=0.05)
STUDY = Study(
    name="small",
    variants=(
        Variant(name="plain"),
        Variant(name="shared", words=("recursion",)),
        Variant(name="wide", words=("recursion",), match=WIDTH),
        Variant(name="long", spends="wide"),
    ),
    options=("dim=32", "depth=4", "heads=2", "dropout=0.0"),
    tokenizer="characters",
    length=16,
    settings=Settings(batch=4, lr=1e-3, device="cpu"),
    budget=StepBudget(steps=40),
    evaluations=2,
    seeds=(0,),
    rows=8,
)


def arms(study: Study) -> dict[str, Arm]:
    on = ground(check(study))
    return {arm.name: arm for arm in plan.arms(study, on, plan.specs(study, on))}


def spent(arm: Arm) -> float:
    return arm.steps * arm.tokens * arm.flops


def also(*variants: Variant, **more) -> Study:
    return replace(STUDY, variants=(*STUDY.variants, *variants), **more)


# ------------------------------------------------------------------ matches


def test_a_variant_has_a_match_of_its_own():
    found = arms(STUDY)
    assert found["shared"].parameters < found["plain"].parameters / 2
    assert found["wide"].parameters == pytest.approx(found["plain"].parameters, rel=0.05)


def test_its_own_match_goes_before_the_study_s():
    blocks = Variant(
        name="blocks", words=("recursion",), match=Match(on="non_embedding", within=0.1)
    )
    found = arms(also(blocks, match=replace(WIDTH, by="feedforward")))
    for name in ("shared", "wide"):
        assert found[name].parameters == pytest.approx(found["plain"].parameters, rel=0.05)
    mine = found["blocks"].non_embedding
    assert mine == pytest.approx(found["plain"].non_embedding, rel=0.1)
    free = replace(
        STUDY, match=WIDTH, variants=tuple(replace(v, matched=False) for v in STUDY.variants)
    )
    assert arms(free)["shared"].parameters == arms(STUDY)["shared"].parameters


def test_a_variant_is_matched_to_another_one_whatever_their_order():
    like = Variant(name="as the shared", match=WIDTH, against="shared")
    first, *others = STUDY.variants
    study = replace(STUDY, variants=(first, like, *others))
    found = arms(study)
    assert found["as the shared"].parameters == pytest.approx(found["shared"].parameters, rel=0.05)
    assert [*found] == [v.name for v in study.variants]


# ------------------------------------------------------------------ compute


def test_a_variant_spends_what_another_spends():
    found = arms(STUDY)
    assert found["long"].steps > 60 and found["wide"].steps == 40
    assert spent(found["long"]) == pytest.approx(spent(found["wide"]), rel=0.02)
    assert found["long"].spec == found["plain"].spec  # no twin: it is trained longer
    chain = arms(also(Variant(name="shared, long", words=("recursion",), spends="long")))
    assert spent(chain["shared, long"]) == pytest.approx(spent(chain["wide"]), rel=0.02)


def test_a_budget_of_compute_is_spent_by_all_already():
    found = arms(replace(STUDY, budget=FlopBudget(flops=6e9), evaluations=1))
    assert found["long"].steps == pytest.approx(found["plain"].steps, rel=0.05)


def test_what_is_equal_is_said_by_the_numbers():
    found = arms(STUDY)
    assert found["plain"].equal == ""
    assert found["shared"].equal == "tokens and compute"
    assert found["wide"].equal == "parameters and tokens"
    assert found["long"].equal.startswith("parameters, with ")
    assert found["long"].equal.endswith(" times the steps")


def test_a_verdict_says_what_is_equal_for_its_variant():
    results = fake.table({"plain": {1e-3: (2.0, 2.01, 2.02)}, "other": {1e-3: (1.0, 1.02, 1.01)}})
    told = judge(results).comparisons[0].words
    assert f"at equal {results.match}" in told
    arms_ = tuple(replace(a, equal="parameters and luck") for a in results.arms)
    assert (
        "at equal parameters and luck" in judge(replace(results, arms=arms_)).comparisons[0].words
    )


# ------------------------------------------------------------------ errors that help


@pytest.mark.parametrize(
    "variant,words",
    [
        (Variant(name="x", spends="nobody"), "spends='nobody': name one of plain, shared"),
        (Variant(name="x", against="nobody", match=WIDTH), "against='nobody': name one of"),
        (Variant(name="x", against="shared"), "give it a match"),
        (Variant(name="x", spends="x"), "x → x"),
        (Variant(name="x", against="x", match=WIDTH), "circle"),
        (Variant(name="shared too", words=("recursion",)), "are the same model"),
        (Variant(name="x", asks=("no_such=1",)), "no_such"),
    ],
)
def test_links_that_lead_nowhere_are_refused(variant, words):
    with pytest.raises(Exception, match=words):
        arms(also(variant))


def test_circles_of_several_are_refused():
    two = (Variant(name="a", spends="b"), Variant(name="b", spends="a"))
    with pytest.raises(StudyError, match="circle: a → b → a"):
        check(also(*two))
    first, *others = STUDY.variants
    turned = replace(first, match=WIDTH, against="wide")
    with pytest.raises(StudyError, match="against goes in a circle"):
        check(replace(STUDY, variants=(turned, *others)))
    with pytest.raises(StudyError, match="circle"):  # the baseline to itself
        check(replace(STUDY, variants=(replace(first, match=WIDTH), *others)))


def test_a_share_that_is_too_small_is_refused():
    cheap = Variant(name="cheap", words=("depth=1",), spends="tiny")
    tiny = Variant(name="tiny", words=("dim=4", "depth=1"))
    with pytest.raises(StudyError, match="fewer than its 40 evaluations"):
        arms(also(tiny, replace(cheap, words=("dim=64",)), evaluations=40))


# ------------------------------------------------------------------ evaluated otherwise


def test_trained_models_are_evaluated_at_other_lengths_and_rounds(tmp_path):
    study = replace(
        STUDY,
        variants=(
            Variant(name="learned"),
            Variant(name="alibi", words=("alibi",)),
            Variant(name="round", words=("recursion", "alibi")),
        ),
        options=("dim=16", "depth=2", "heads=2", "dropout=0.0"),
        budget=StepBudget(steps=2),
        evaluations=1,
        lengths=(8, 32),
        retests=("rounds=3",),
    )
    now = begun(study, tmp_path, 1)
    for key in now.keys:
        work.do(tmp_path, key)
    found = now.results()
    learned, alibi, round = (found.of(v.name)[0] for v in study.variants)
    assert {o.status for o in found.outcomes} == {"done"}
    assert "loss@8" in learned.points[-1].scores and "loss@32" not in learned.points[-1].scores
    assert learned.note is not None and "32 (it has 16 positions)" in learned.note
    assert alibi.note == "not evaluated at rounds=3 (each of its layers runs once)"
    assert {"loss@8", "loss@32", "accuracy@32"} <= {*alibi.points[-1].scores}
    assert "loss@rounds=3" in round.points[-1].scores and round.note is None
    assert all("loss@8" not in p.scores for o in found.outcomes for p in o.points[:-1])
    assert from_json(to_json(found)) == found == opened(tmp_path)


def test_what_a_study_asks_afterwards_is_part_of_its_runs():
    on = ground(STUDY)
    arm = arms(STUDY)["plain"]
    key = lambda **more: plan.trial(replace(STUDY, **more), on, arm, 0, 1e-3).key
    assert key() == key(lengths=()) != key(lengths=(8,))
    assert key(lengths=(8,)) != key(retests=("rounds=2",))


def test_a_study_stops_in_time(tmp_path, monkeypatch):
    """The engine lets runs save when it hears that time is up; tests/study/test_shipped.py."""
    heard = []

    def local(home, keys, jobs, hear):
        hear()
        heard.append(keys)

    monkeypatch.setitem(engine.ENGINES, "local", local)
    study = replace(STUDY, variants=STUDY.variants[:2], rates=(1e-3, 2e-3), tune="first")
    found = run(study, tmp_path, 1, minutes=0.0)
    assert not heard and {o.status for o in found.outcomes} == {"waiting"}
    run(study, tmp_path, 1, minutes=5.0)
    assert len(heard) == 1 and (tmp_path / "results.json").is_file()  # no rate has ended well


def test_a_rate_that_other_seeds_do_not_stand_gives_way_to_the_next(tmp_path, monkeypatch):
    """The rate that is best with the first seed fails with the last one."""
    scores = {(1e-3, 0): 2.0, (1e-3, 1): 2.1, (1e-3, 2): 7.0, (5e-4, 0): 2.2}
    study = replace(STUDY, variants=STUDY.variants[:2], rates=(2e-4, 5e-4, 1e-3), tune="first")
    study = replace(study, seeds=(0, 1, 2))
    starts = []

    def results(now):
        trials = [work.kept(now.home, key) for key in now.keys]
        runs = [fake.run(t.variant, t.seed, t.lr, scores.get((t.lr, t.seed), 2.5)) for t in trials]
        empty = fake.table({v.name: {} for v in study.variants})
        return replace(empty, seeds=study.seeds, rates=study.rates, outcomes=tuple(runs))

    monkeypatch.setitem(engine.ENGINES, "local", lambda home, keys, *_: starts.append(len(keys)))
    monkeypatch.setattr(Standing, "results", results)
    found = run(study, tmp_path, 1)
    assert starts == [6, 10, 14]  # three rates; two more seeds of the best; the same of the next
    chosen = read(found, study.variants[0].name)
    assert chosen.lr == 5e-4 and chosen.values == {0: 2.2, 1: 2.5, 2: 2.5} and not chosen.edge
