"""Rows of a table whose gradients wait: the same sums as torch's."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from anyformer.ops import lookup

WHERE = "cuda" if torch.cuda.is_available() else "cpu"
IDS = torch.tensor([[1, 4, 1], [0, 1, 4]], device=WHERE)


def _gradient(table: nn.Parameter, tied: bool) -> torch.Tensor:
    x = lookup.rows(IDS, table)
    (x.sin() @ table.T if tied else x.sin()).square().sum().backward()
    return torch.empty(0) if table.grad is None else table.grad


@pytest.mark.parametrize("tied", [False, True])
def test_gradients_are_those_of_torch(tied):
    table = nn.Parameter(torch.randn(5, 3, dtype=torch.float64, device=WHERE))
    wanted = _gradient(table, tied).clone()
    table.grad = None
    with lookup.later():
        early = _gradient(table, tied).clone()
    assert table.grad is not None
    assert not torch.allclose(early, wanted) if tied else not early.numel()
    torch.testing.assert_close(table.grad, wanted)
    with lookup.later():
        _gradient(table, tied)
    torch.testing.assert_close(table.grad, 2 * wanted)  # a second pass adds to it


def test_rows_are_those_of_the_table():
    table = nn.Parameter(torch.randn(5, 3, device=WHERE))
    with lookup.later():
        assert torch.equal(lookup.rows(IDS, table), F.embedding(IDS, table))


def test_only_a_table_that_learns_by_itself_waits():
    table = nn.Parameter(torch.randn(5, 3, device=WHERE))
    with lookup.later():
        assert lookup.rows(IDS, table.detach()).grad_fn is None
        (lookup.rows(IDS, table * 2.0).sum()).backward()  # made of another
        assert table.grad is not None and table.grad[1].eq(6.0).all()
        with torch.no_grad():
            assert lookup.rows(IDS, table).grad_fn is None


def test_nothing_waits_where_sums_have_an_order(monkeypatch):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    table = nn.Parameter(torch.randn(5, 3, device=WHERE))
    with lookup.later():
        assert _gradient(table, False).numel()


def test_a_pass_that_failed_adds_nothing():
    table = nn.Parameter(torch.randn(5, 3, device=WHERE))
    with pytest.raises(RuntimeError, match="no memory"), lookup.later():
        _gradient(table, False)
        raise RuntimeError("no memory")
    assert table.grad is None
    assert _gradient(table, False).numel()  # and none is open
