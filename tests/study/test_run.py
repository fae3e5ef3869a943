"""A study from its start to its results, interrupted, again, and with runs that go wrong."""

import dataclasses
import json
import shutil

import pytest

from anyformer.errors import StudyError
from anyformer.study import engine, run, work
from anyformer.study.gather import study_of
from anyformer.study.nodes import StepBudget, TimeBudget
from anyformer.study.stats import judge
from anyformer.study.watch import over, state
from tests.study import tiny


def _here(home, keys, jobs, heard, every=0.5):
    """An engine in this process: no start of another."""
    for key in work.retry(home, keys):
        work.do(home, key)
        heard()


@pytest.fixture(autouse=True)
def _engine(monkeypatch):
    monkeypatch.setitem(engine.ENGINES, "local", _here)
    monkeypatch.setattr(engine, "local", _here)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.text(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    home = tmp_path_factory.mktemp("studies") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engine.ENGINES, "local", _here)
        heard = []
        found = run.run(tiny.study(data), home, 1, "local", heard.append)
    return home, found, heard


@pytest.fixture
def copy(done, tmp_path):
    return shutil.copytree(done[0], tmp_path / "copy")


def test_a_study_ends_with_results(done):
    home, found, heard = done
    assert [o.status for o in found.outcomes] == ["done"] * 4
    assert {(o.variant, o.seed) for o in found.outcomes} == {
        (v, s) for v in ("plain", "rotary") for s in (0, 1)
    }
    for outcome in found.outcomes:
        assert [p.step for p in outcome.points] == [0, 6, 12]
        assert outcome.points[-1].scores["loss"] < outcome.points[0].scores["loss"]
        assert outcome.sample and outcome.training
    assert judge(found).of("rotary").p is not None
    assert len(heard) == 4 and over(found) and not over(heard[0])
    assert (home / "results.json").is_file() and study_of(home) == tiny.study(found.data["what"][0])


def test_the_folder_alone_tells_the_same(done):
    home, found, _ = done
    assert run.opened(home).outcomes == found.outcomes
    assert run.opened(home).command == found.command


def test_finished_runs_are_not_repeated(copy, data, monkeypatch):
    keys = [o.key for o in run.opened(copy).outcomes]
    before = state(copy)
    monkeypatch.setattr(work, "_trained", lambda *_: pytest.fail("a run was repeated"))
    run.run(tiny.study(data), copy, 1)
    assert [o.key for o in run.opened(copy).outcomes] == keys
    assert state(copy) != before  # the plan was written again


def test_a_run_that_failed_is_tried_again(copy, data):
    key = run.opened(copy).outcomes[0].key
    folder = copy / work.RUNS / key
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / work.OUTCOME).write_text(json.dumps({"status": "failed", "reason": "no memory"}))
    assert run.opened(copy).outcomes[0].reason == "no memory"
    heard = []
    found = run.run(tiny.study(data), copy, 1, watch=heard.append)
    assert all(o.status != "failed" for r in heard for o in r.outcomes)
    assert found.outcomes[0].status == "done"


def test_an_error_of_a_run_is_kept_and_the_study_goes_on(copy, data, monkeypatch):
    broken = run.opened(copy).outcomes[1].key
    shutil.rmtree(copy / work.RUNS / broken)
    (copy / work.TRIALS / f"{broken}.json").unlink()
    trained = work._trained

    def fail(home, folder, trial):
        if trial.key == broken:
            raise StudyError("this one can't be")
        return trained(home, folder, trial)

    monkeypatch.setattr(work, "_trained", fail)
    found = run.run(tiny.study(data), copy, 1)
    assert [o.status for o in found.outcomes].count("failed") == 1
    assert next(o for o in found.outcomes if o.key == broken).reason == "this one can't be"


def test_a_run_that_diverges_is_told_with_its_seed(data, tmp_path):
    found = run.run(tiny.study(data, rates=(4e-3, 1e3)), tmp_path / "s", 1)
    wild = [o for o in found.outcomes if o.lr == 1e3]
    assert {o.status for o in wild} == {"diverged"} and all(o.reason for o in wild)
    assert "diverged at learning rate 1e+03 (seeds 0, 1)" in judge(found).of("rotary").words


def test_a_folder_with_another_study(copy, data):
    with pytest.raises(StudyError, match="holds another study"):
        run.run(tiny.study(data, rows=8), copy, 1)


def test_data_that_changed(copy, tmp_path):
    file = tiny.text(tmp_path)
    moved = json.loads((copy / "study.json").read_text())
    moved["study"]["data"] = [str(file)]
    (copy / "study.json").write_text(json.dumps(moved))
    file.write_text(file.read_text() + "\nAnd one more sentence that was not there before.")
    with pytest.raises(StudyError, match=r"train: \d+ rows .* then, \d+ rows .* now.*Put it back"):
        run.run(study_of(copy), copy, 1)


def test_a_study_that_cant_be_leaves_nothing(data, tmp_path):
    with pytest.raises(StudyError, match="the budget allows"):
        run.run(tiny.study(data, budget=StepBudget(steps=1)), tmp_path / "s", 1)
    assert not (tmp_path / "s").exists()
    graph = dataclasses.replace(tiny.study(data).settings, graph=True)
    with pytest.raises(StudyError, match="none is here: take --tier cpu"):
        run.run(tiny.study(data, settings=graph), tmp_path / "s", 1)
    with pytest.raises(StudyError, match="0 jobs"):
        run.run(tiny.study(data), tmp_path / "s", 0)
    with pytest.raises(StudyError, match="did you mean 'ray'"):
        run.run(tiny.study(data), tmp_path / "s", 1, "rai")


def test_what_is_left_of_one_that_never_began_is_not_taken(data, tmp_path):
    home = tmp_path / "s"
    (home / "tokenizer").mkdir(parents=True)
    with pytest.raises(StudyError, match="the budget allows"):
        run.run(tiny.study(data, budget=StepBudget(steps=1)), home, 1)
    assert not home.exists()


def test_minutes_become_steps(data, tmp_path):
    with pytest.raises(StudyError, match="evaluating alone would take"):
        run.begun(tiny.study(data, budget=TimeBudget(minutes=1e-4)), tmp_path / "s", 1)
    now = run.begun(tiny.study(data, budget=TimeBudget(minutes=2.0)), tmp_path / "t", 1)
    assert now.arms[0].steps == now.arms[1].steps > 20
    assert not (tmp_path / "t" / "probe").exists()


def test_the_best_rate_of_the_first_seed_is_gone_on_with(data, tmp_path):
    study = tiny.study(data, rates=(1e-5, 4e-3), tune="first")
    found = run.run(study, tmp_path / "s", 1)
    assert [(o.seed, o.lr) for o in found.of("plain")] == [(0, 1e-5), (0, 4e-3), (1, 4e-3)]
    assert len(run.opened(tmp_path / "s").outcomes) == 6


def test_older_runs_of_a_folder_are_not_in_its_results(copy):
    stray = next((copy / work.TRIALS).glob("*.json"))
    shutil.copy(stray, stray.with_name("0123456789abcdef.json"))
    assert len(run.opened(copy).outcomes) == 4


def test_a_study_from_a_file(data, tmp_path):
    from anyformer.spec import to_json

    file = tmp_path / "s.json"
    file.write_text(to_json(tiny.study(data)))
    assert run.read_study(file) == tiny.study(data)
    for text, told in (("{", "is no study"), ('{"is": "Rotary"}', "not a Study"), ("[]", "s.json")):
        file.write_text(text)
        with pytest.raises(StudyError, match=told):
            run.read_study(file)
    with pytest.raises(StudyError, match="can't read"):
        run.read_study(tmp_path / "gone.json")
    with pytest.raises(StudyError, match="is no study"):
        run.opened(tmp_path)
