"""Runs: folders that hold everything, locks, logs, early stops, signals, changed data."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.checkpoint.native import Origin
from anyformer.data.loader import Loader
from anyformer.errors import TrainError
from anyformer.model.model import build
from anyformer.train import log, resume, train
from anyformer.train import run as runs
from anyformer.train.lock import Lock
from anyformer.train.loop import Loop
from anyformer.train.settings import Adafactor, Constant, Evaluation, Muon, Saving
from anyformer.train.stop import Stop
from tests.train.tiny import Bound, Numbers, TinyCausal, settings, spec, weights

DATA = (Numbers(), Numbers(6, seed=1))


def _train(folder, model=None, data=DATA, objective=TinyCausal(), **options):
    return train(model or spec(), data, objective, folder, settings(**options))


def _assert_same(one: Path, two: Path) -> None:
    assert (one / log.METRICS).read_bytes() == (two / log.METRICS).read_bytes()
    a, b = weights(one), weights(two)
    assert all(torch.equal(a[k], b[k]) for k in a)


def _interrupt(monkeypatch, after: int, which: signal.Signals) -> None:
    """Send a signal to this process within the step after so many."""
    step, left = Loop._read, [after]

    def read(self, lag):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), which)
        step(self, lag)

    monkeypatch.setattr(Loop, "_read", read)


def test_a_run_is_a_folder_with_all_it_takes(tmp_path):
    run = _train(tmp_path / "a", steps=20, log_every=4)
    record = json.loads((run.folder / "run.json").read_text())
    assert S.from_dict(record["spec"]) == spec()
    assert S.from_dict(record["settings"]) == settings(steps=20, log_every=4)
    assert S.from_dict(record["objective"]) == TinyCausal()
    assert record["data"]["train"]["fingerprint"] == Numbers().fingerprint
    assert record["versions"]["torch"] == torch.__version__
    assert [r["step"] for r in run.history if "loss" in r] == [1, 4, 8, 12, 16, 20]
    assert run.loss is not None
    assert run.loss < run.history[0]["loss"]
    assert run.validation["loss"] > 0
    text = (run.folder / "model" / "README.md").read_text()
    assert text.startswith('---\nlibrary_name: "anyformer"\n')
    model = anyformer.load(run.folder / "model")
    assert model.spec == spec()
    speed = [json.loads(x) for x in (run.folder / log.SPEED).read_text().splitlines()]
    assert all(x["tokens_per_second"] > 0 and x["share_of_peak"] > 0 for x in speed)
    assert all(0 < x["waiting_share"] < 1 for x in speed)


def test_a_folder_with_a_run_is_not_written_over(tmp_path):
    _train(tmp_path / "a", steps=1)
    with pytest.raises(TrainError, match="resume it"):
        _train(tmp_path / "a")


def test_two_processes_do_not_share_a_folder(tmp_path):
    with (
        Lock(tmp_path),
        pytest.raises(TrainError, match=f"in use by process {os.getpid()}"),
        Lock(tmp_path),
    ):
        pass
    with Lock(tmp_path):  # free again
        pass


def test_a_given_model_goes_on_from_its_weights(tmp_path):
    model = build(spec(dropout=0.0))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    _train(tmp_path / "a", model=model, steps=1, lr=1e-12, saving=Saving(every=1, keep=5))
    found = weights(tmp_path / "a")
    for key, tensor in before.items():
        torch.testing.assert_close(found[key], tensor, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("half", "which", "optimiser"),
    [("bfloat16", "SIGINT", Muon()), ("float16", "SIGTERM", Adafactor())],
)
def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path, monkeypatch, half, which, optimiser):
    options = {"steps": 7, "precision": half, "ema": 0.9, "evaluation": Evaluation(every=3)}
    options["optimiser"] = optimiser
    _train(tmp_path / "whole", **options)
    _interrupt(monkeypatch, 5, signal.Signals[which])
    with pytest.raises(SystemExit) as end:
        _train(tmp_path / "cut", **options)
    assert end.value.code == {"SIGINT": 130, "SIGTERM": 143}[which]
    assert (tmp_path / "cut/checkpoints/step-00000005").is_dir()
    monkeypatch.undo()
    resume(tmp_path / "cut", DATA)
    _assert_same(tmp_path / "whole", tmp_path / "cut")


def test_a_finished_run_resumed_stays_what_it_is(tmp_path):
    _train(tmp_path / "a")
    before = (tmp_path / "a" / log.METRICS).read_bytes(), weights(tmp_path / "a")
    run = resume(tmp_path / "a", DATA)
    assert run.steps == 8
    assert (tmp_path / "a" / log.METRICS).read_bytes() == before[0]
    assert all(torch.equal(v, before[1][k]) for k, v in weights(tmp_path / "a").items())


def test_a_damaged_newest_checkpoint_costs_only_its_steps(tmp_path, capsys):
    _train(tmp_path / "whole")
    _train(tmp_path / "cut")
    newest = tmp_path / "cut/checkpoints/step-00000008"
    data = next(newest.glob("__0_*"))
    data.write_bytes(data.read_bytes()[:-9])
    resume(tmp_path / "cut", DATA)
    assert "damaged" in capsys.readouterr().err
    _assert_same(tmp_path / "whole", tmp_path / "cut")


def test_other_data_is_refused_unless_allowed(tmp_path):
    _train(tmp_path / "a", steps=3)
    with pytest.raises(TrainError, match=r"train data is not what.*changed=True"):
        resume(tmp_path / "a", (Numbers(seed=5), DATA[1]))
    assert resume(tmp_path / "a", (Numbers(seed=5), DATA[1]), changed=True).steps == 3


def test_samples_are_opened_from_the_source(tmp_path):
    given = settings(steps=2)
    train(spec(), DATA, TinyCausal(), tmp_path / "a", given, source={"kind": "numbers"})
    seen = []
    resume(tmp_path / "a", open=lambda source: seen.append(source) or DATA)
    assert seen == [{"kind": "numbers"}]
    with pytest.raises(TrainError, match="open="):
        resume(tmp_path / "a")


def test_what_can_not_be_resumed_says_so(tmp_path):
    with pytest.raises(TrainError, match=r"no run\.json"):
        resume(tmp_path, DATA)
    _train(tmp_path / "a", objective=Bound(), steps=1)
    with pytest.raises(TrainError, match="objective="):
        resume(tmp_path / "a", DATA)
    assert resume(tmp_path / "a", DATA, Bound()).steps == 1


def test_a_run_stops_when_validation_gets_no_better(tmp_path):
    options = {
        "steps": 30,
        "lr": 0.5,
        "clip": None,
        "guard": None,
        "schedule": Constant(),
        "evaluation": Evaluation(every=2, patience=2),
        "saving": Saving(every=0, keep=1, take="best"),
    }
    run = _train(tmp_path / "a", **options)
    assert run.steps < 30
    assert "no better" in (run.stopped or "")
    losses = {r["step"]: r["validation/loss"] for r in run.history if "validation/loss" in r}
    assert run.best == min(losses.values())
    best = min(losses, key=losses.__getitem__)
    kept = {f.name for f in (run.folder / "checkpoints").iterdir()}
    assert kept == {f"step-{best:08d}", f"step-{run.steps:08d}"}
    assert resume(tmp_path / "a", DATA).steps == run.steps  # it stays stopped


def test_the_averaged_weights_become_the_model(tmp_path):
    _train(tmp_path / "plain", lr=1e-2)
    _train(tmp_path / "mean", lr=1e-2, ema=0.9)
    plain, mean = weights(tmp_path / "plain"), weights(tmp_path / "mean")
    assert any(not torch.equal(plain[k], mean[k]) for k in plain)


def test_frozen_weights_stay(tmp_path):
    model = build(spec())
    before = model.state_dict()["embed.token.weight"].clone()
    _train(tmp_path / "a", model=model, frozen=("embed.*",))
    assert torch.equal(weights(tmp_path / "a")["embed.token.weight"], before)


@pytest.mark.parametrize("lag", [1, 2])
def test_numbers_that_are_read_later_are_the_same(tmp_path, monkeypatch, lag):
    """As on a GPU, which is not waited for."""
    options = {"evaluation": Evaluation(every=3), "saving": Saving(every=4)}
    _train(tmp_path / "now", **options)
    made = Loop.__init__

    def late(self, *args, **given):
        made(self, *args, **given)
        self.lag = lag

    monkeypatch.setattr(Loop, "__init__", late)
    _train(tmp_path / "later", **options)
    _assert_same(tmp_path / "now", tmp_path / "later")


def test_workers_change_nothing(tmp_path):
    _train(tmp_path / "none", steps=4)
    _train(tmp_path / "some", steps=4, workers=2)
    _assert_same(tmp_path / "none", tmp_path / "some")


def test_a_worker_that_dies_is_named(tmp_path):
    class Deadly(Bound):
        def example(self, samples, index, rng):
            if index == 9:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().example(samples, index, rng)

    with pytest.raises(TrainError, match=r"workers=1.*resume"):
        _train(tmp_path / "a", data=Numbers(), objective=Deadly(), workers=1)
    assert resume(tmp_path / "a", Numbers(), Bound()).steps == 8


def test_a_worker_that_dies_as_it_hands_over_is_named(tmp_path, monkeypatch):
    def cut(*_):
        raise ConnectionResetError(104, "Connection reset by peer")
        yield

    monkeypatch.setattr(Loader, "steps", cut)
    with pytest.raises(TrainError, match=r"workers=1.*resume"):
        _train(tmp_path / "a", data=Numbers(), objective=Bound(), workers=1)
    with pytest.raises(TrainError, match="intact"):  # no worker, so it is something else
        _train(tmp_path / "b", data=Numbers(), objective=Bound(), workers=0)


def test_weights_without_a_use_go_back(tmp_path):
    model = build(spec())
    model.origin = Origin("gpt2", "causal", {"a": 1}, {"extra": torch.ones(2)})
    runs._keep_spare(tmp_path, model)
    record = {"origin": {"family": "gpt2", "task": "causal", "config": {"a": 1}}}
    found = runs._origin_of(tmp_path, record)
    assert found == model.origin
    assert found is not None
    assert torch.equal(found.spare["extra"], torch.ones(2))


def test_a_second_interrupt_stops_at_once(capsys):
    with Stop() as stop, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.code == 130
        os.kill(os.getpid(), signal.SIGINT)
    assert "saving" in capsys.readouterr().err


def test_a_missing_tracker_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(TrainError, match="pip install wandb"):
        _train(tmp_path / "a", trackers=("wandb",))


FULL = """
import resource, sys
from pathlib import Path
from tests.train.tiny import *
from anyformer.train import train
from anyformer.train.save import Saver
inner = Saver.save
def save(self, step, *rest):
    if step == 6:
        self.wait()
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
    inner(self, step, *rest)
Saver.save = save
train(spec(), Numbers(), TinyCausal(), sys.argv[1], settings())
"""


def test_a_real_limit_of_the_disk(tmp_path):
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root / "src"), str(root)])
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "a")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "step 3 is intact" in done.stderr, done.stderr
    assert not list((tmp_path / "a/checkpoints").glob(".*"))
    run = resume(tmp_path / "a", Numbers())
    assert run.steps == 8


def test_the_record_is_read_or_named(tmp_path):
    (tmp_path / runs.RECORD).write_text("{")
    with pytest.raises(TrainError, match="not valid JSON"):
        runs.read(tmp_path)
