"""Group F: ranks that raise, die, hang, disagree, find no room, or come in other numbers."""

import json
import socket
import subprocess
import sys
import threading

import pytest
import torch
from torch.distributed.checkpoint import FileSystemWriter

from anyformer.errors import SpecError, TrainError
from anyformer.train import ranks, save
from anyformer.train.settings import check
from tests.distributed.helping import ROOT, environment, weights
from tests.faults.helping import assert_refused, assert_told
from tests.train.tiny import settings

NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
WHOLE = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """All jobs of tests.faults.ranks, done once."""
    folder = tmp_path_factory.mktemp("ranks")
    words = [sys.executable, "-m", "tests.faults.ranks", str(folder)]
    done = subprocess.run(
        words, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture
def told(home):
    return json.loads((home / "done.json").read_text())


def assert_intact(folder, step=3):
    """That the checkpoint before the fault is whole and nothing is half written."""
    found = save.newest(folder / "checkpoints", pytest.fail)
    assert found is not None and found >= step
    assert not list((folder / "checkpoints").glob(".*"))


def test_f61_a_rank_that_raises(home, told):
    done = told["raise"]
    assert done["codes"] == [1, 1]
    assert done["seconds"] < 20
    assert done["said"][1].startswith("rank 1: ValueError: row 46 is poison")
    assert_told(done["said"][0], ("lost the others", "rank 1 ended with ValueError: row 46"))
    assert_intact(home / "raise")


def test_f62_a_rank_that_is_killed_and_comes_back(home, told):
    assert told["kill"]["codes"] == [1, -9]
    assert told["kill"]["seconds"] < 20
    assert told["restart"]["codes"] == [0, 0]
    assert "going on after step" in told["restart"]["said"][0]
    one, two = weights(home / "whole"), weights(home / "kill")
    assert all(torch.equal(one[k], two[k]) for k in one)


def test_f63_a_rank_that_hangs(home, told):
    done = told["stop"]
    assert done["codes"][0] == 1
    assert done["seconds"] < 20
    assert_told(done["said"][0], ("in all_reduce", "rank 1 says nothing", "resume"))
    assert_intact(home / "stop")


def test_f63_a_rank_that_is_gone_before_the_others_met_it(home, told):
    """While the group of checkpoints is made, for which torch alone would wait half an hour."""
    done = told["gone"]
    assert done["codes"] == [1, -9]
    assert done["seconds"] < 20
    assert_told(done["said"][0], ("in new_group", "rank 1 says nothing", "resume"))
    assert not (home / "gone" / "checkpoints").exists()


def test_f64_ranks_that_were_asked_different_things(home, told):
    done = told["differ"]
    assert done["codes"] == [1, 1]
    for said in done["said"]:
        assert_told(said, ("settings.lr is 0.003 on rank 0 and 0.004 on rank 1",))
    assert not (home / "differ" / "run.json").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"RANK": None}, "RANK missing"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE='two' is no number"),
        ({"RANK": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
        ({"RANK": "1", "MASTER_PORT": "1"}, "could not meet at 127.0.0.1:1"),
        ({"RANK": "1", "MASTER_ADDR": "no.such.host.invalid"}, "no.such.host.invalid"),
        ({"MASTER_PORT": "taken"}, "could not meet at 127.0.0.1"),
        ({}, "could not meet"),
    ],
    ids=["no rank", "no number", "too high", "nobody", "no host", "port taken", "alone"],
)
def test_f65_an_environment_that_is_wrong(monkeypatch, change, says):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as taken, socket.socket() as free:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        given = WHOLE | {"MASTER_PORT": port} | change
        if given["MASTER_PORT"] == "taken":
            given["MASTER_PORT"] = str(taken.getsockname()[1])
        for name, value in given.items():
            if value is not None:
                monkeypatch.setenv(name, value)
        with assert_refused(says, error=TrainError, seconds=20, remedy=False):
            with ranks.start(timeout=1.0):
                pass
    assert not ranks.initialised()
    with assert_refused("can't be shared by 3 ranks", error=SpecError):
        check(settings(batch=8), world=3)


def test_f66_one_rank_finds_no_room(home, told):
    done = told["full"]
    assert done["codes"] == [1, 1]
    for said in done["said"]:
        assert_told(said, ("No space left", "step 0 is intact", "resume"))
    assert_intact(home / "full", 0)


def test_f66_files_that_are_seen_late(home, told):
    """Each rank speaks for its own files, so that the manifest names all of them."""
    assert told["late"]["codes"] == [0, 0]
    last = home / "late" / "checkpoints" / save.name(8)
    named = json.loads((last / save.MANIFEST).read_text())["files"]
    assert {name[:4] for name in named if name.startswith("__")} == {"__0_", "__1_"}
    assert save.fault(last) is None


def test_f66_only_the_first_rank_writes(home):
    run = home / "whole"
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 10
    assert [p.name for p in run.iterdir()].count("run.json") == 1


@pytest.mark.parametrize("world", [1, 4])
def test_f67_other_numbers_of_ranks(home, told, world):
    done = told[f"on {world}"]
    assert done["codes"] == [0] * world
    one, two = weights(home / "whole"), weights(home / f"on {world}")
    for key, tensor in one.items():
        torch.testing.assert_close(two[key], tensor, rtol=1e-4, atol=1e-5)


def test_f68_a_last_batch_that_is_uneven(home):
    """Seven rows over two ranks: the denominators are those of one process."""

    def scores(name):
        lines = (home / name / "metrics.jsonl").read_text().splitlines()
        return next(r for r in map(json.loads, reversed(lines)) if "validation/loss" in r)

    for name in ("on 1", "on 4"):
        for key, value in scores("whole").items():
            assert scores(name)[key] == pytest.approx(value, rel=1e-4), key


def test_f69_a_save_in_the_background_is_waited_for(home, told, tmp_path, monkeypatch):
    assert told["async"]["codes"] == [0, 0]
    one, two = weights(home / "whole"), weights(home / "async")
    assert all(torch.equal(one[k], two[k]) for k in one)
    saver, go = save.Saver(tmp_path, 2, background=True), threading.Event()
    inner = FileSystemWriter.write_data

    def slow(self, *given):
        assert go.wait(10)
        return inner(self, *given)

    monkeypatch.setattr(FileSystemWriter, "write_data", slow)
    saver.save(1, {"a": torch.ones(2)}, {})
    assert save.newest(tmp_path, pytest.fail) is None
    go.set()
    saver.save(2, {"a": torch.ones(2)}, {})  # joins the first
    assert save.newest(tmp_path, pytest.fail) is not None

    def full(*_):
        raise OSError(28, "No space left on device")

    saver.wait()
    monkeypatch.setattr(FileSystemWriter, "write_data", full)
    saver.save(3, {"a": torch.ones(2)}, {})
    with assert_refused("step 3 could not be written", "step 2 is intact", error=TrainError):
        saver.wait()
