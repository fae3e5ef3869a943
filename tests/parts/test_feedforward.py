"""Activations against torch and transformers, the branch against its formula."""

import typing

import pytest
import torch
from transformers.activations import ACT2FN

from anyformer import spec as S
from anyformer.parts import build
from anyformer.parts.feedforward import ACTIVATIONS
from anyformer.parts.state import Call

THEIRS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "identity": "linear",
}
X = torch.randn(2, 5, 8, dtype=torch.float64)
CALL = Call(length=5, positions=torch.arange(5)[None])


def test_every_activation_of_the_spec_is_there():
    assert set(typing.get_args(S.Activation)) == set(ACTIVATIONS) == set(THEIRS)


@pytest.mark.parametrize("name", THEIRS)
def test_activations(name):
    x = torch.linspace(-6, 6, 101)
    torch.testing.assert_close(ACTIVATIONS[name](x), ACT2FN[THEIRS[name]](x))


def test_gelus_differ():
    x = torch.linspace(-3, 3, 50)
    assert not torch.allclose(ACTIVATIONS["gelu"](x), ACTIVATIONS["gelu_tanh"](x), atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("act", ["gelu", "relu2"])
def test_plain(act, bias):
    ff = build(S.FeedForward(hidden=16, act=act, bias=bias), 8).double()
    want = ff.down(ACTIVATIONS[act](ff.up(X)))
    torch.testing.assert_close(ff(X, CALL, "0.0"), want)
    assert ff.gate is None
    assert len(list(ff.parameters())) == (4 if bias else 2)


def test_gated():
    ff = build(S.FeedForward(hidden=16, act="silu", gated=True), 8).double()
    up, gate = X @ ff.up.weight.T + ff.up.bias, X @ ff.gate.weight.T + ff.gate.bias
    want = (up * gate * torch.sigmoid(gate)) @ ff.down.weight.T + ff.down.bias
    torch.testing.assert_close(ff(X, CALL, "0.0"), want)


def test_hidden_is_four_times_the_width():
    assert build(S.FeedForward(), 8).up.weight.shape == (32, 8)


def test_dropout_is_for_training_alone():
    ff = build(S.FeedForward(dropout=0.5), 8).double()
    calm = ff.eval()(X, CALL, "0.0")
    assert torch.equal(calm, ff(X, CALL, "0.0"))
    assert not torch.equal(calm, ff.train()(X, CALL, "0.0"))
