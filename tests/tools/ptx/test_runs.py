"""The emulator under pytest, in a process of its own: here Triton may be asked to interpret."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="tools.ptx: Triton isn't installed")

from anyformer.ops.kernels import native
from tools.ptx import launch

ROOT = Path(__file__).resolve().parents[3]


def emulated(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What pytest says about tests on the emulator."""
    env = {n: x for n, x in os.environ.items() if not n.startswith("PYTEST_")}
    env |= {"TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""}
    env["PYTHONPATH"] = os.pathsep.join(["src", ".", env.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tools.ptx.plugin"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments],
        **{"capture_output": True, "text": True, "env": env, "check": False, "cwd": ROOT},
    )


def passed(done: subprocess.CompletedProcess[str]) -> tuple[int, int]:
    """How many tests passed, of which none failed or was skipped, and how many kernels ran."""
    assert not done.returncode, done.stdout[-3000:] + done.stderr[-1000:]
    found = re.search(r"^(\d+) passed in", done.stdout, re.M)
    kernels = re.search(r"^emulated: (\d+) launches, [1-9]\d+ instructions", done.stdout, re.M)
    assert found and kernels, done.stdout[-1000:]
    return int(found[1]), int(kernels[1])


def test_small_kernels() -> None:
    count, launches = passed(emulated("tests/tools/ptx/test_kernels.py"))
    assert count > 10 and launches > 10


def test_attention() -> None:
    """Forward, and what gradients need."""
    case = "tests/ops/test_tiles.py::test_equals_eager_in_bfloat16[ALiBi]"
    count, launches = passed(emulated(case))
    assert count == 1 and launches >= 3


@pytest.mark.skipif(native.compiler() is None, reason="NVRTC isn't installed")
def test_cuda() -> None:
    """Kernels that aren't Triton's."""
    cases = ("test_equals_torch", "test_what_the_emulator_stops")
    count, launches = passed(emulated(*(f"tests/ops/test_native.py::{x}" for x in cases)))
    assert count == 4 and launches == 6


@pytest.mark.skipif(native.compiler() is None, reason="NVRTC isn't installed")
def test_one_pass() -> None:
    """Gradients of vectors by distance, with all that a kernel of ours asks of a GPU."""
    cases = ("test_the_output_too[rows of no whole tile]", "test_keys_take_turns")
    count, launches = passed(emulated(*(f"tests/ops/test_onepass.py::{x}" for x in cases)))
    assert count == 2 and launches > 10


def test_not_where_triton_interprets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=0 is needed"), launch.emulated():
        pass
