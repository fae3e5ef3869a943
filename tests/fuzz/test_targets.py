"""A little fuzzing of each target in every run; `python -m tests.fuzz --minutes N` does more."""

import time

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.targets import TARGETS

SECONDS = 20.0  # that one example may take on a busy machine


@pytest.mark.parametrize("name", TARGETS)
def test_only_errors_of_ours(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    target, draw = TARGETS[name]

    @settings(max_examples=40, suppress_health_check=list(HealthCheck), database=None)
    @given(draw)
    def one(content):
        before = time.monotonic()
        target(content, tmp_path)
        assert time.monotonic() - before < SECONDS

    one()
