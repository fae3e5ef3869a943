"""Activations against torch and transformers, the branch against its formula."""

import typing

import pytest
import torch
from transformers.activations import ACT2FN

from anyformer import spec as S
from anyformer.ops import fusing, gelu
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


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # dynamo does
@pytest.mark.parametrize("act", ["gelu", "gelu_tanh"])
def test_in_a_compiled_block_a_kernel_adds_the_bias(act, monkeypatch):
    if not gelu.takes(torch.zeros(1, dtype=torch.bfloat16)):
        pytest.skip("kernel: TRITON_INTERPRET=1 runs it on a CPU")
    torch.manual_seed(0)
    branch, x = build(S.FeedForward(act=act), 8), torch.randn(2, 5, 8)
    torch.nn.init.normal_(branch.up.bias)

    def gradients(forward):
        branch.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            y = forward(x, CALL, "0")
        y.float().square().sum().backward()
        return {"y": y.detach(), **{n: p.grad for n, p in branch.named_parameters()}}

    names = []

    def counted(graph, inputs):
        names.extend(str(n.target) for n in graph.graph.nodes)
        return graph.forward

    monkeypatch.setattr(fusing, "DEVICES", ("cpu",))
    wanted = gradients(branch.forward)
    torch._dynamo.reset()
    found = gradients(torch.compile(branch.forward, backend=counted, fullgraph=True))
    assert not any("gelu" in n and "anyformer" not in n for n in names)
    for name, value in wanted.items():
        assert (found[name] - value).norm() <= 2e-2 * value.norm(), name
