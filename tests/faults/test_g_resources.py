"""Group G: no room, no memory, no permission, no network, no reader, a small machine."""

import errno
import os
import resource
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import anyformer
from anyformer.errors import CheckpointError, TrainError
from anyformer.train import resume, save, train
from anyformer.train.settings import Saving
from tests.faults.helping import assert_kept, assert_refused, made
from tests.train.tiny import Bound, Numbers, settings, spec

ROOT = Path(__file__).resolve().parents[2]
BEFORE = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


@contextmanager
def limited(which, value):
    """A limit of this process for a while."""
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


def test_g70_a_full_disk_while_a_model_is_saved(theirs):
    larger = made(dim=64)
    with assert_kept(theirs.parent), limited(resource.RLIMIT_FSIZE, 9000):
        with assert_refused(str(theirs), "File too large", "as it was", error=CheckpointError):
            larger.save_pretrained(theirs)
    assert anyformer.load(theirs).spec.dim == 8


@pytest.mark.parametrize("background", [False, True])
def test_g70_a_full_disk_while_a_run_saves(tmp_path, monkeypatch, background):
    inner = save.Saver.save
    held = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limiting(self, step, *given):
        if step == 6:
            self.wait()
            resource.setrlimit(resource.RLIMIT_FSIZE, (9000, held[1]))
        inner(self, step, *given)

    monkeypatch.setattr(save.Saver, "save", limiting)
    saving = Saving(every=3, background=background)
    try:
        with assert_refused(
            "step 3 is intact", "make room", "resume", error=TrainError, seconds=20
        ):
            train(spec(), Numbers(), Bound(), tmp_path / "a", settings(saving=saving))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, held)
    monkeypatch.undo()
    assert not list((tmp_path / "a" / "checkpoints").glob(".*"))
    assert resume(tmp_path / "a", Numbers(), Bound()).steps == 8


class Greedy(Bound):
    """Asks for more memory than there is, in one step."""

    def terms(self, trainee, batch):
        result = super().terms(trainee, batch)
        if trainee.training and batch["input_ids"].sum() == self.asked(batch):
            torch.empty(10**17, device=batch["input_ids"].device)
        self.seen = getattr(self, "seen", 0) + 1
        return result

    def asked(self, batch):
        return batch["input_ids"].sum() if getattr(self, "seen", 0) == 4 else -1


def assert_runs_out(folder, **options):
    with assert_refused("out of memory", "GiB", "micro=", "resume", error=TrainError, seconds=60):
        train(spec(), Numbers(), Greedy(), folder, settings(**options))
    assert save.newest(folder / "checkpoints", pytest.fail) == 3
    assert resume(folder, Numbers(), Bound()).steps == 8


def test_g71_memory_that_runs_out(tmp_path):
    assert_runs_out(tmp_path / "a", device="cpu")


@pytest.mark.gpu
def test_g72_memory_of_a_gpu_that_runs_out(tmp_path):
    assert_runs_out(tmp_path / "a", device="cuda")


def test_g73_places_that_can_not_be_written(theirs, tmp_path, command, monkeypatch):
    with assert_refused("/proc/nowhere", "Make room, or give a folder", error=CheckpointError):
        made().save_pretrained("/proc/nowhere/x")
    command.assert_fails(["convert", theirs, "/proc/nowhere/x"], "/proc/nowhere")
    with assert_refused("/proc/nowhere", error=TrainError, remedy=False):
        train(spec(), Numbers(), Bound(), "/proc/nowhere/x", settings())
    (tmp_path / "file").write_text("")
    command.assert_fails(["convert", theirs, "file"], "is a file", "give a folder")

    def no_inodes(*given, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", no_inodes)
    with assert_kept(tmp_path), assert_refused("No space left", error=CheckpointError):
        made().save_pretrained(tmp_path / "new")


def test_g73_more_shards_than_open_files(tmp_path):
    model = made(depth=20, dim=16)
    model.save_pretrained(tmp_path / "m", max_shard_size="1KB")
    assert len(list((tmp_path / "m").glob("*.safetensors"))) > 150
    used = len(os.listdir("/proc/self/fd"))
    with limited(resource.RLIMIT_NOFILE, used + 16):
        again = anyformer.load(tmp_path / "m")
    assert all(torch.equal(t, again.state_dict()[k]) for k, t in model.state_dict().items())


def test_g74_no_network(theirs, writer, command, monkeypatch):
    """Nothing is asked for that is a folder; a name of the hub fails in seconds."""
    asked = []

    def connect(*given, **options):
        asked.append(given)
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    assert anyformer.load(theirs).spec.dim == 8
    assert command.ends(["generate", writer, "a", "--max-new-tokens", "1"])[0] == 0
    assert asked == []
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    before = time.monotonic()
    command.assert_fails(["generate", "org/name", "a"], "org/name", seconds=15)
    assert asked
    assert time.monotonic() - before < 15


def test_g75_a_reader_that_has_seen_enough():
    words = f"{sys.executable} -m anyformer list | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words}"], env=BEFORE, capture_output=True, text=True
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


SMALL = """
import os, re, sys
from pathlib import Path
os.sched_setaffinity(0, {next(iter(os.sched_getaffinity(0)))})
sys.modules["triton"] = None  # which a machine without a GPU has no use for
from anyformer.cli.main import main
code = main(["train", "--data", "a.txt", "--steps", "3", "--out", "run"])
most = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print("MiB", int(most[1]) // 1024)
sys.exit(code)
"""


def test_g76_one_core_and_512_megabytes(tmp_path):
    (tmp_path / "a.txt").write_text("Some words of a text, again and again. " * 3000)
    done = subprocess.run(
        [sys.executable, "-c", SMALL], env=BEFORE, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.rpartition("MiB ")[2]) < 512
