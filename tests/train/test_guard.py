"""Steps that go wrong are taken back, and their batch is left out."""

import json
import math

import pytest
import torch

from anyformer.errors import TrainError
from anyformer.train import log, resume, train
from anyformer.train.guard import Watch
from anyformer.train.loop import Loop, Position
from anyformer.train.settings import Guard, Saving
from tests.train.tiny import Bound, Numbers, settings, spec, weights


class Poisoned(Bound):
    """The loss of a batch with a marked row is not a number, or far too high."""

    def __init__(self, rows: tuple[int, ...], value: float = math.nan):
        super().__init__()
        self.rows, self.value = rows, value

    def example(self, samples, index, rng):
        found = super().example(samples, index, rng)
        found["marked"] = found["input_ids"][:1] * 0 + (index in self.rows)
        return found

    def terms(self, trainee, batch):
        marked = batch.pop("marked")
        result = super().terms(trainee, batch)
        if marked.any():
            result.losses = {k: v * self.value for k, v in result.losses.items()}
        return result


def _train(folder, objective, **options):
    return train(spec(), Numbers(), objective, folder, settings(**options))


def _events(folder):
    return [r for r in log.read(folder) if "event" in r]


@pytest.mark.parametrize("value", [math.nan, math.inf, 40.0])
def test_a_wrong_step_is_taken_back_and_its_batch_left_out(tmp_path, value):
    guard = Guard(window=2, sigma=6.0)
    run = _train(
        tmp_path / "a", Poisoned((17,), value), guard=guard
    )  # batch 4, after step 3's save
    (event,) = _events(run.folder)
    assert event["step"] == 3
    assert event["at"] == 5
    assert event["skipped"] == [4]
    assert [r["step"] for r in run.history if "loss" in r] == list(range(1, 9))
    assert all(math.isfinite(r["loss"]) for r in run.history if "loss" in r)
    saved = json.loads((run.folder / "checkpoints/step-00000008/state.json").read_text())
    assert saved["position"]["skipped"] == [4]


@pytest.mark.parametrize("lag", [0, 1])
def test_the_result_is_that_of_data_without_the_batch(tmp_path, monkeypatch, lag):
    """Leaving out batch 4 equals samples in which the later rows have moved up."""
    made = Loop.__init__

    def late(self, *args, **given):
        made(self, *args, **given)
        self.lag = lag

    monkeypatch.setattr(Loop, "__init__", late)
    one = _train(tmp_path / "a", Poisoned((17,)), guard=Guard(sigma=None))

    class Moved(Bound):
        def example(self, samples, index, rng):
            return super().example(samples, index + 4 * (index >= 16), rng)

    two = _train(tmp_path / "b", Moved(), guard=Guard(sigma=None))
    a, b = weights(one.folder), weights(two.folder)
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_a_wrong_step_twice_leaves_out_all_since_the_checkpoint(tmp_path):
    _train(tmp_path / "a", Poisoned((17, 20)))
    first, second = _events(tmp_path / "a")[0], _events(tmp_path / "a")[-1]
    assert second["skipped"] == [3, 4, 5]
    assert first["at"] == second["at"] == 5


def test_too_many_wrong_steps_stop_the_run_and_it_can_be_resumed(tmp_path):
    bad = Poisoned(tuple(range(16, 400)))
    with pytest.raises(
        TrainError, match=r"step 4: the loss is nan .*went back 2 times.*guard\.skips"
    ):
        _train(tmp_path / "a", bad, guard=Guard(skips=2))
    run = resume(tmp_path / "a", Numbers(), Bound())
    assert run.steps == 8


def test_without_a_guard_nothing_is_taken_back(tmp_path):
    run = _train(tmp_path / "a", Poisoned((17,)), guard=None)
    assert not _events(run.folder)
    assert run.history[4]["loss"] == "nan"


def test_a_spike_is_judged_by_the_last_losses():
    watch = Watch(Guard(sigma=6.0, window=4))
    assert [watch.fault(x, 1.0) for x in (2.0, 2.1, 1.9, 2.0)] == [None] * 4
    assert "deviations" in (watch.fault(4.0, 1.0) or "")
    assert watch.fault(2.2, 1.0) is None
    assert "gradient" in (watch.fault(2.0, math.inf) or "")
    again = Watch(Guard(sigma=6.0, window=4))
    again.restore(json.loads(json.dumps(watch.state())))
    assert list(again.losses) == list(watch.losses)


def test_batches_left_out_move_the_rest_on():
    at = Position(skipped=[2, 3, 7])
    assert [at.data(step) for step in range(7)] == [0, 1, 4, 5, 6, 8, 9]


def test_the_state_of_the_guard_is_saved(tmp_path):
    _train(tmp_path / "a", Bound(), guard=Guard(window=5), saving=Saving(every=3))
    state = json.loads((tmp_path / "a/checkpoints/step-00000006/state.json").read_text())
    assert len(state["watch"]["losses"]) == 5
