"""One rank or several: the same run, saved by some and continued by others."""

import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from anyformer.train import hearing, log, ranks
from tests.train.tiny import weights

ROOT = Path(__file__).resolve().parents[2]


def _gang(*jobs: str) -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.gang", *jobs],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def _assert_near(one: Path, two: Path) -> None:
    for a, b in zip(log.read(one), log.read(two), strict=True):
        assert a.keys() == b.keys()
        assert all(a[k] == pytest.approx(b[k], rel=1e-5, abs=1e-6) for k in a), (a, b)
    a, b = weights(one), weights(two)
    for key, tensor in a.items():
        if not key.endswith("k.bias"):  # its gradient is 0 but for rounding
            torch.testing.assert_close(b[key], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_ranks_share_a_run_and_others_go_on_with_it(tmp_path):
    one, two, four = (tmp_path / name for name in ("one", "two", "four"))
    _gang(f"{one}:1", f"{two}:2", f"{four}:4", f"{two}:1", f"{four}:2")
    _assert_near(one, two)  # begun by two, finished by one
    _assert_near(one, four)  # begun by four, finished by two


def test_a_group_that_gloo_never_makes_is_an_error_in_time(monkeypatch):
    """As happens where a process is gone while others connect to it; other errors come through."""
    go = threading.Event()
    monkeypatch.setattr(ranks, "_limit", timedelta(seconds=0.05))
    monkeypatch.setattr(hearing, "PATIENCE", 0.05)
    monkeypatch.setattr("torch.distributed.new_group", lambda **_: go.wait(20))
    with pytest.raises(RuntimeError, match=r"new_group timed out after 0\.05 s") as caught:
        ranks.group()
    assert hearing.LOST.search(str(caught.value))  # so it is told which ranks say nothing
    go.set()

    def fails(**_):
        raise ValueError("another")

    monkeypatch.setattr("torch.distributed.new_group", fails)
    with pytest.raises(ValueError, match="another"):
        ranks.group()
