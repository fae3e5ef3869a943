"""Group E: runs that are stopped, killed, poisoned or met by another one."""

import math
import os
import signal
import time

import pytest
import torch

from anyformer.cli.main import main
from anyformer.data.loader import Loader
from anyformer.errors import DivergedError, SpecError, TrainError
from anyformer.train import log, resume, save, train
from anyformer.train.lock import Lock
from anyformer.train.schedule import factor
from anyformer.train.settings import Cosine, Guard, InverseRoot, LinearDecay, Saving, check
from anyformer.train.step import Stepper
from tests.faults.helping import assert_kept, assert_refused
from tests.train.test_guard import Poisoned
from tests.train.tiny import Bound, Numbers, TinyCausal, settings, spec, weights


def signalled(monkeypatch, at, *signals):
    """Send signals to this process in a step."""
    run = Stepper.run

    def stepped(self, step, *given):
        if step == at:
            for which in signals:
                os.kill(os.getpid(), which)
        return run(self, step, *given)

    monkeypatch.setattr(Stepper, "run", stepped)


def begun(folder, **options):
    return train(spec(), Numbers(10), TinyCausal(), folder, settings(**options))


def assert_same(one, two):
    assert (one / log.METRICS).read_bytes() == (two / log.METRICS).read_bytes()
    a, b = weights(one), weights(two)
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_e51_an_interrupt(tmp_path, monkeypatch):
    signalled(monkeypatch, 4, signal.SIGINT)
    with pytest.raises(SystemExit) as end:
        begun(tmp_path / "a")
    assert end.value.code == 130
    done = save.newest(tmp_path / "a" / "checkpoints", pytest.fail)
    assert done in (5, 6)  # the step was finished, where it had asked already the next one
    monkeypatch.undo()
    assert resume(tmp_path / "a", Numbers(10)).steps == 8


def test_e51_a_second_interrupt_ends_at_once(tmp_path, monkeypatch):
    signalled(monkeypatch, 4, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        begun(tmp_path / "a", saving=Saving(every=3, background=False))
    monkeypatch.undo()
    assert save.newest(tmp_path / "a" / "checkpoints", pytest.fail) == 3
    assert resume(tmp_path / "a", Numbers(10)).steps == 8


def test_e51_the_command_ends_with_130(tmp_path, command, monkeypatch):
    (tmp_path / "a.txt").write_text("some words in a text. " * 60)
    signalled(monkeypatch, 2, signal.SIGINT)
    told = ["--data", "a.txt", "--tokenizer", "bytes", "--steps", "6", "--batch", "2"]
    words = ["train", "gpt2", "dim=8", "depth=1", "heads=2", *told, "--length", "8"]
    code, _, err = command.ends([*words, "--out", "run"])
    assert code == 130
    assert "`anyformer resume` goes on from there" in err
    assert "Traceback" not in err


def test_e52_a_request_to_end(tmp_path, monkeypatch):
    signalled(monkeypatch, 4, signal.SIGTERM)
    before = time.monotonic()
    with pytest.raises(SystemExit) as end:
        begun(tmp_path / "a")
    assert end.value.code == 143
    assert time.monotonic() - before < 30  # the grace that schedulers give
    monkeypatch.undo()
    assert save.newest(tmp_path / "a" / "checkpoints", pytest.fail) in (5, 6)
    assert resume(tmp_path / "a", Numbers(10)).steps == 8


class Killed(BaseException):
    """Stands for a signal that can't be caught: nothing of ours runs after it."""


def killing(monkeypatch, call):
    """Raise at one of the calls that make a file durable or give it its name, and ever after."""
    left = [call]

    def watched(inner):
        def outer(*given, **options):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return inner(*given, **options)

        return outer

    for name in ("fsync", "replace", "rename"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    return left


def test_e53_killed_between_any_two_operations_of_a_save(tmp_path, monkeypatch):
    """Before each of the calls in turn; what was complete before is found and is whole.

    `python -m tests.faults.kills` sends real SIGKILLs; tests/train/test_resume.py runs it.
    """
    tensors = lambda value: {"a": torch.full((5,), value), "b": torch.tensor(value)}
    call, ended = 0, False
    while not ended:
        home = tmp_path / str(call)
        for step in (1, 2):
            save.Saver(home, 2, background=False).save(step, tensors(float(step)), {"at": step})
        with monkeypatch.context() as patch:
            killing(patch, call)
            try:
                save.Saver(home, 2, background=False).save(3, tensors(3.0), {"at": 3})
                ended = True
            except Killed:
                pass
        save.clean(home)
        last = save.newest(home, pytest.fail)
        assert last in (2, 3)
        found = tensors(0.0)
        save.fill(home / save.name(last), found)
        assert found["a"].eq(last).all() and save.state_of(home / save.name(last)) == {"at": last}
        assert not list(home.glob(".*"))
        call += 1
    assert call > 6
    assert last == 3


def test_e54_a_resumed_run_is_the_run(tmp_path, monkeypatch):
    """In the second epoch, with dropout, noise, micro-batches and averaged weights."""
    options = {"micro": 2, "ema": 0.9, "batch": 4}
    begun(tmp_path / "whole", **options)
    signalled(monkeypatch, 4, signal.SIGTERM)
    with pytest.raises(SystemExit):
        begun(tmp_path / "cut", **options)
    monkeypatch.undo()
    resume(tmp_path / "cut", Numbers(10))
    assert_same(tmp_path / "whole", tmp_path / "cut")


def test_e54_masked_words_in_packed_rows(tmp_path, command, monkeypatch):
    (tmp_path / "a.txt").write_text("\n\n".join(f"some words of text {i}." for i in range(60)))
    size = ["dim=8", "depth=1", "heads=2", "--data", "a.txt", "--split", "block"]
    made = ["tokenizer", "train", "wordpiece", "--data", "a.txt", "--vocab", "300"]
    assert command.ends([*made, "--style", "bert", "--out", "words"])[0] == 0
    words = ["train", "bert", *size, "--tokenizer", "words", "--length", "16"]
    words += ["--steps", "5", "--batch", "4", "--set", "log_every=1"]
    assert command.ends([*words, "--out", "whole"])[0] == 0
    signalled(monkeypatch, 2, signal.SIGTERM)
    assert command.ends([*words, "--out", "cut"])[0] == 143
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "cut"]) == 0
    assert_same(tmp_path / "whole", tmp_path / "cut")


def test_e55_other_ranks_read_the_same_samples(tmp_path):
    rows = lambda rank, world: [
        batch["input_ids"].tolist()
        for step in Loader(Numbers(10), Bound(), 8, seed=3, rank=rank, world=world).steps(range(5))
        for batch in step
    ]
    whole = rows(0, 1)
    for world in (2, 4):
        parts = [rows(rank, world) for rank in range(world)]
        joined = [[r for part in step for r in part] for step in zip(*parts, strict=True)]
        assert joined == whole
    with assert_refused("can't be shared by 3 ranks", "take a multiple", error=SpecError):
        check(settings(batch=8), world=3)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_e56_losses_that_are_no_numbers(tmp_path, value):
    """The step is taken back and its batch left out and named; in the end the run stops."""
    run = train(spec(), Numbers(), Poisoned((17,), value), tmp_path / "a", settings())
    (event,) = [r for r in run.history if "event" in r]
    assert event["skipped"] == [4] and event["at"] == 5
    assert all(math.isfinite(r["loss"]) for r in run.history if "loss" in r)
    if value == math.inf:
        return
    bad = Poisoned(tuple(range(16, 400)), value)
    with assert_refused("step 4", "samples from", "guard.skips", error=DivergedError, seconds=20):
        train(spec(), Numbers(), bad, tmp_path / "b", settings(guard=Guard(skips=2)))
    assert resume(tmp_path / "b", Numbers(), Bound()).steps == 8


def test_e57_a_spike(tmp_path):
    guard = Guard(window=2, sigma=6.0)
    run = train(spec(), Numbers(), Poisoned((17,), 40.0), tmp_path / "a", settings(guard=guard))
    (event,) = [r for r in run.history if "event" in r]
    assert "deviations too high" in event["event"]


def test_e58_a_clock_that_goes_back(tmp_path, monkeypatch):
    now = [1e9]

    def back():
        now[0] -= 3600.0
        return now[0]

    begun(tmp_path / "a")
    for name in ("time", "perf_counter", "monotonic"):
        monkeypatch.setattr(f"anyformer.train.progress.time.{name}", back)
    begun(tmp_path / "b")
    monkeypatch.undo()
    assert_same(tmp_path / "a", tmp_path / "b")


def test_e58_numbers_of_steps_and_short_schedules(tmp_path, monkeypatch):
    for schedule in (Cosine(warmup=3), LinearDecay(), InverseRoot(warmup=2)):
        rates = [factor(schedule, step, 10) for step in (0, 9, 10, 11, 10**6, 10**15)]
        assert all(0.0 <= rate <= 1.0 for rate in rates)
    with assert_refused("warmup=9 is more than steps=8", "take fewer", error=SpecError):
        begun(tmp_path / "a", schedule=Cosine(warmup=9))
    far = 10**12
    saver = save.Saver(tmp_path / "c", 2, background=False)
    for step in (99_999_999, far):
        saver.save(step, {"a": torch.ones(1)}, {})
    assert save.newest(tmp_path / "c", pytest.fail) == far
    signalled(monkeypatch, 2, signal.SIGINT)
    with pytest.raises(SystemExit):
        begun(tmp_path / "b", steps=far)


def test_e59_two_processes_in_one_folder(tmp_path):
    begun(tmp_path / "a", steps=2)
    with Lock(tmp_path / "a"), assert_kept(tmp_path):
        with assert_refused(f"in use by process {os.getpid()}", "wait for it", error=TrainError):
            resume(tmp_path / "a", Numbers(10))
    with assert_refused("holds a run", "resume it", error=TrainError), assert_kept(tmp_path):
        begun(tmp_path / "a")


def test_e60_a_corrupt_newest_checkpoint(tmp_path, capsys):
    done = begun(tmp_path / "a", saving=Saving(every=3, keep=3, background=False))
    home = done.folder / "checkpoints"
    data = next((home / save.name(8)).glob("__0_*"))
    whole = bytearray(data.read_bytes())
    whole[len(whole) // 2] ^= 4
    data.write_bytes(whole)
    before = weights(done.folder)
    again = resume(done.folder, Numbers(10))
    assert again.steps == 8
    assert "step-00000008 is damaged" in capsys.readouterr().err
    assert all(torch.equal(t, before[k]) for k, t in weights(done.folder).items())
