"""Each way into the stream by its formula."""

import pytest
import torch

from anyformer import spec as S
from anyformer.parts import build
from anyformer.parts.init import initialise

X, Y = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)


def made(spec):
    return build(spec, 4).double()


def test_add():
    torch.testing.assert_close(made(S.Add())(X, Y), X + Y)
    torch.testing.assert_close(made(S.Add(skip=1.5, branch=0.5))(X, Y), 1.5 * X + 0.5 * Y)
    assert not list(made(S.Add()).parameters())


def test_rezero_starts_as_the_stream():
    residual = made(S.ReZero(branch=2.0))
    assert torch.equal(residual(X, Y), X)
    with torch.no_grad():
        residual.gain.fill_(0.3)
    torch.testing.assert_close(residual(X, Y), X + 0.6 * Y)


def test_rezero_learns_from_zero():
    residual = made(S.ReZero())
    residual(X, Y).sum().backward()
    torch.testing.assert_close(residual.gain.grad, Y.sum()[None])


@pytest.mark.parametrize("on", ["branch", "skip"])
def test_scaled(on):
    residual = made(S.Scaled(init=0.1, on=on, branch=0.5))
    assert residual.gain.tolist() == pytest.approx([0.1] * 4)
    with torch.no_grad():
        residual.gain.copy_(torch.arange(4.0))
    gain = torch.arange(4.0, dtype=torch.float64)
    want = X + gain * 0.5 * Y if on == "branch" else gain * X + 0.5 * Y
    torch.testing.assert_close(residual(X, Y), want)


def test_gated_is_a_gru_cell():
    residual = made(S.Gated(branch=0.5))
    W, U = residual.cell.weight_ih.chunk(3), residual.cell.weight_hh.chunk(3)
    b, c = residual.cell.bias_ih.chunk(3), residual.cell.bias_hh.chunk(3)
    y = 0.5 * Y
    r = torch.sigmoid(y @ W[0].T + b[0] + X @ U[0].T + c[0])
    z = torch.sigmoid(y @ W[1].T + b[1] + X @ U[1].T + c[1])
    n = torch.tanh(y @ W[2].T + b[2] + r * (X @ U[2].T + c[2]))
    torch.testing.assert_close(residual(X, Y), (1 - z) * n + z * X)


def test_a_wide_opening_keeps_the_stream():
    residual = made(S.Gated(bias=50.0))
    initialise(residual, S.Init(), 4)
    torch.testing.assert_close(residual(X, Y), X)


@pytest.mark.parametrize("spec", [S.Add(branch=0.5), S.ReZero(), S.Scaled(init=0.2)])
def test_what_is_added_is_what_joins(spec):
    residual = made(spec)
    torch.testing.assert_close(X + residual.added(Y), residual(X, Y))
