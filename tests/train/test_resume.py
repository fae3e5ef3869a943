"""A run that was killed and went on is the run that wasn't, bit for bit."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.train.tiny import weights

ROOT = Path(__file__).resolve().parents[2]


def _assert_same_after(folder: Path, kills: int, seed: int, mode: str) -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.nursery", str(folder), str(kills), str(seed), mode],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    hit = re.search(r"hit (\d+)", done.stdout)
    assert hit and int(hit[1]) > 0, "no kill came in time"
    whole, cut = folder / "whole", folder / "cut"
    assert (whole / "metrics.jsonl").read_bytes() == (cut / "metrics.jsonl").read_bytes()
    wanted, found = weights(whole), weights(cut)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[k], found[k]) for k in wanted)
    assert not list((cut / "checkpoints").glob(".*"))


@pytest.mark.parametrize("mode", ["time", "call"])
def test_a_killed_run_goes_on_bit_for_bit(tmp_path, mode):
    _assert_same_after(tmp_path, 3, 1, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["time", "call"])
def test_twenty_kills(tmp_path, mode):
    _assert_same_after(tmp_path, 20, 2, mode)
