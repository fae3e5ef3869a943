"""Processes that meet, disagree, die and come back."""

import os
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from anyformer.errors import TrainError
from anyformer.train import ranks
from tests.distributed.helping import assert_done, numbers, torchrun, weights

NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
WHOLE = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture
def around(monkeypatch):
    """Sets what the environment says of ranks."""

    def put(**given):
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)

    return put


def test_one_process_has_nothing_to_start(around):
    around()
    with ranks.start() as rank:
        assert (rank, ranks.world(), ranks.initialised()) == (0, 1, False)
    around(RANK="0", WORLD_SIZE="1")
    with ranks.start() as rank:
        assert rank == 0 and not ranks.initialised()


def test_groups_of_some_ranks_wait_no_longer_than_all(monkeypatch):
    """Torch gives a group half an hour, whatever the first one was told."""
    monkeypatch.setattr(ranks, "_limit", timedelta(seconds=7))
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=ranks._limit)
    try:
        made = ranks.mesh("cpu", {"data": 1, "tensor": 1})
        limits = [
            g._get_backend(torch.device("cpu")).options._timeout for g in made.get_all_groups()
        ]
    finally:
        dist.destroy_process_group()
    assert limits == [timedelta(seconds=7)] * 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"RANK": None}, "RANK missing"),
        ({"MASTER_ADDR": None, "MASTER_PORT": None}, "MASTER_ADDR, MASTER_PORT missing"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE='two' is no number"),
        ({"RANK": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
        ({"RANK": "1", "MASTER_PORT": "1"}, "could not meet at 127.0.0.1:1"),
    ],
)
def test_an_environment_that_is_wrong(around, change, says):
    around(**{k: v for k, v in (WHOLE | change).items() if v is not None})
    with pytest.raises(TrainError, match=says):
        with ranks.start(timeout=1.0):
            pass
    assert not ranks.initialised()


@pytest.mark.parametrize(
    ("two", "path"),
    [({"a": [1, {"b": 3}]}, "a.1.b"), ({"a": 1}, "a"), ({"a": [1, {"b": 2}], "c": 0}, "c")],
)
def test_the_first_difference_is_named(two, path):
    found = ranks._difference({"a": [1, {"b": 2}]}, two)
    assert found is not None and found[0] == path
    assert ranks._difference(two, two) is None


@pytest.mark.slow  # tests/faults/test_f_ranks.py does the same without torchrun's own processes
def test_a_killed_rank_comes_back_and_a_run_ends_the_same(home, tmp_path):
    out = tmp_path / "cut"
    done = torchrun(2, "tests.distributed.fragile", str(out), "kill", restarts=1)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "going on after step 2" in done.stderr
    wanted, found = weights(home / "ddp"), weights(out)
    assert all(torch.equal(wanted[k], found[k]) for k in wanted)
    assert numbers(out) == numbers(home / "ddp")
    assert not list((out / "checkpoints").glob(".*"))


def test_a_rank_that_raises_ends_all(tmp_path):
    begun = time.perf_counter()
    done = torchrun(2, "tests.distributed.fragile", str(tmp_path / "a"), "raise")
    assert done.returncode != 0
    assert "rank 1: ValueError: row 29 is poison" in done.stderr
    assert time.perf_counter() - begun < 100
    assert (tmp_path / "a" / "checkpoints" / "step-00000002" / "manifest.json").is_file()


@pytest.mark.slow  # as test_f64 of tests/faults/test_f_ranks.py
def test_ranks_that_were_asked_different_things(tmp_path):
    job = {"case": "gpt2", "world": 2, "differ": True, "out": str(tmp_path / "a")}
    with pytest.raises(
        AssertionError, match=r"settings\.lr is 0\.003 on rank 0 and 0\.004 on rank 1"
    ):
        assert_done(tmp_path, [job])
    assert not os.path.exists(tmp_path / "a" / "run.json")
