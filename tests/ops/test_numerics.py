"""The comparison with float64 that the benchmarks print, and its bounds."""

import pytest
import torch

from benchmarks import numerics
from benchmarks.runner import Settings

ON_CPU = Settings(only=("eager", "sdpa"))


@pytest.mark.parametrize("dtype", numerics.FORWARD)
@pytest.mark.parametrize("backend", ["sdpa", "eager", "chunked", "halved"])
def test_errors_are_within_bounds(backend, dtype):
    found = numerics.errors(
        backend, numerics.plans()["causal"], getattr(torch, dtype), ON_CPU, compiled=False
    )
    assert found is not None and found[1] is not None
    assert 0 < found[0] < numerics.FORWARD[dtype] and 0 < found[1] < numerics.BACKWARD[dtype]


def test_a_bound_that_is_passed_ends_with_1(monkeypatch, capsys):
    monkeypatch.setattr(numerics, "plans", lambda: {"causal": PLANS["causal"]})
    assert numerics.numerics(ON_CPU) is None
    assert "beyond" not in capsys.readouterr().out
    monkeypatch.setitem(numerics.FORWARD, "bfloat16", 1e-6)
    with pytest.raises(SystemExit) as end:
        numerics.numerics(ON_CPU)
    assert end.value.code == 1 and "beyond" in capsys.readouterr().out


PLANS = numerics.plans()
