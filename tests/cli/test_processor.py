"""Processors that tell of more than they can do."""

import signal

import pytest
import torch

from anyformer.cli import doctor
from anyformer.cli.processor import LIMIT, TILES, remedy

DIES = f"import os; os.kill(os.getpid(), {int(signal.SIGILL)})"


@pytest.fixture
def told(tmp_path, monkeypatch):
    monkeypatch.delenv(LIMIT[0], raising=False)
    path = tmp_path / "cpuinfo"
    path.write_text(f"flags : sse2 {TILES}")
    return path


def test_an_illegal_instruction_has_a_remedy(told):
    assert remedy(told, DIES) == "=".join(LIMIT)
    assert remedy(told, "pass") is None


def test_who_has_no_tiles_or_the_remedy_is_not_asked(told, monkeypatch, tmp_path):
    assert remedy(tmp_path / "none", DIES) is None
    monkeypatch.setenv(*LIMIT)
    assert remedy(told, DIES) is None
    monkeypatch.delenv(LIMIT[0])
    told.write_text("flags : sse2")
    assert remedy(told, DIES) is None


def test_the_doctor_tells_it(monkeypatch):
    monkeypatch.setattr(doctor, "remedy", lambda: "=".join(LIMIT))
    assert "dies" in dict(doctor.machine())["bfloat16 on the processor"]


def test_products_work_in_these_tests():
    x = torch.ones(64, 64, dtype=torch.bfloat16)
    assert (x @ x == 64).all()
