"""Runs in processes of their own: side by side, killed, interrupted, over Ray."""

import os
import signal
import threading
import time

import pytest

from anyformer.errors import StudyError
from anyformer.study import engine, run, work
from anyformer.study.nodes import StepBudget
from tests.study import tiny


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.text(tmp_path_factory.mktemp("data"))


def _workers():
    """Processes that this one started as workers."""
    found = []
    for folder in os.listdir("/proc"):
        try:
            with open(f"/proc/{folder}/stat") as stat, open(f"/proc/{folder}/cmdline") as line:
                if int(stat.read().rpartition(")")[2].split()[1]) == os.getpid():
                    found += [int(folder)] if engine.START in line.read() else []
        except (OSError, ValueError):
            continue
    return found


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc"), reason="finds processes in /proc")


@needs_proc
def test_a_killed_worker_takes_one_run_with_it_and_the_next_start_goes_on(data, tmp_path):
    study = tiny.study(data, budget=StepBudget(steps=100), seeds=(0,), rows=4)
    killed = []

    def heard(found):
        going = [o for o in found.outcomes if o.status == "running"]
        if going and not killed:
            killed.extend(_workers())
            os.kill(killed[0], signal.SIGKILL)

    found = run.run(study, tmp_path / "s", 1, watch=heard)
    failed = [o for o in found.outcomes if o.status == "failed"]
    assert len(killed) == 1 and len(failed) == 1
    assert "died with status -9" in failed[0].reason
    assert sum(o.status == "done" for o in found.outcomes) == 1
    assert not _workers()
    begun = time.time()
    again = run.run(study, tmp_path / "s", 1)
    assert [o.status for o in again.outcomes] == ["done"] * 2
    old = [o for o in again.outcomes if o.key != failed[0].key]
    files = [tmp_path / "s" / work.RUNS / o.key / work.OUTCOME for o in old]
    assert all(file.stat().st_mtime < begun for file in files)


@needs_proc
def test_an_interrupt_lets_runs_save_and_they_go_on(data, tmp_path):
    study = tiny.study(data, budget=StepBudget(steps=3000), seeds=(0,), rows=4)
    begun = threading.Event()

    def heard(found):
        if any(o.training and o.training[-1][0] > 100 for o in found.outcomes):
            begun.set()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.run(study, tmp_path / "s", 2, watch=heard)
    assert begun.is_set() and not _workers()
    left = run.opened(tmp_path / "s")
    assert {o.status for o in left.outcomes} <= {"running", "waiting", "done"}
    saved = list((tmp_path / "s" / work.RUNS).glob("*/checkpoints/*"))
    assert saved


def test_how_many_at_once(monkeypatch):
    monkeypatch.setattr(engine, "cores", lambda: 16)
    assert engine.usual_jobs("cpu") == 16 and engine.usual_jobs("cuda") == 4


def test_ray_that_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(StudyError, match=r"pip install 'anyformer\[ray\]'"):
        engine.over_ray(tmp_path, [], 1, lambda: None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_over_ray(data, tmp_path):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    try:
        found = run.run(tiny.study(data), tmp_path / "s", 2, "ray")
    finally:
        ray.shutdown()
    assert [o.status for o in found.outcomes] == ["done"] * 4
