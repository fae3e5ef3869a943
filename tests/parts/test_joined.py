"""q, k and v by one product: the same numbers, and nobody who listens to a map is passed over."""

import pytest
import torch

from anyformer import spec as S
from anyformer.model.model import build
from anyformer.parts import attention
from anyformer.recipes import recipe
from anyformer.train.prepare import prepare
from anyformer.train.settings import Settings

IDS = torch.randint(0, 50, (8, 40), generator=torch.Generator().manual_seed(0))
SIZES = {"dim": 32, "depth": 2, "heads": 4, "vocab": 50}
SPECS = {
    "gpt2": recipe("gpt2", length=40, dropout=0.0, **SIZES),
    "no biases, few key heads, rotary": recipe("llama", kv_heads=2, **SIZES),
    "other biases": S.override(
        recipe("gpt2", length=40, dropout=0.0, **SIZES), "stack.block.0.branch.k_bias", False
    ),
}


def products(model, monkeypatch, narrow):
    """The gradients of a model, and how many products q, k and v took."""
    monkeypatch.setattr(attention, "NARROW", narrow)
    model.zero_grad()
    with torch.profiler.profile() as seen:
        model(IDS).logits.float().square().mean().backward()
    many = sum(e.count for e in seen.key_averages() if e.key == "aten::linear")
    return {name: p.grad.clone() for name, p in model.named_parameters()}, many


@pytest.mark.parametrize("name", SPECS)
def test_one_product_is_three(name, monkeypatch):
    torch.manual_seed(0)
    model = build(SPECS[name])
    apart, three = products(model, monkeypatch, 0)
    joined, one = products(model, monkeypatch, 256)
    assert three - one == (0 if name == "other biases" else 4), "two fewer in each of two layers"
    for key, gradient in apart.items():
        torch.testing.assert_close(joined[key], gradient, rtol=1e-4, atol=1e-6, msg=key)


def compiled_blocks(spec, monkeypatch, joining):
    """The gradients of a model of compiled blocks, and the products of each graph."""
    graphs, plain = [], torch.compile

    def counted(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(attention, "JOINING", joining)
    monkeypatch.setattr(attention, "CROWD", 256)
    monkeypatch.setattr(torch, "compile", lambda f: plain(f, backend=counted))
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = build(spec).train()
    prepare(model, Settings(steps=1, batch=8, compile=True))
    with torch.autocast("cpu", torch.bfloat16):
        model(IDS).logits.float().square().mean().backward()
    monkeypatch.undo()
    many = [sum(n.target is torch._C._nn.linear for n in g.graph.nodes) for g in graphs]
    return {name: p.grad.clone() for name, p in model.named_parameters()}, many


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo's own look at it
@pytest.mark.parametrize("name", SPECS)
def test_one_product_is_three_in_a_compiled_block(name, monkeypatch):
    apart, three = compiled_blocks(SPECS[name], monkeypatch, ())
    joined, one = compiled_blocks(SPECS[name], monkeypatch, ("cpu",))
    gated = 1 if "rotary" in name else 0
    assert {*three} == {6 + gated}
    assert {*one} == ({6} if name == "other biases" else {4 + gated}) and len(one) == len(three)
    for key, gradient in apart.items():
        assert (joined[key] - gradient).norm() <= 1e-2 * gradient.norm() + 1e-6, key


def test_a_hook_on_a_map_is_heard(monkeypatch):
    model, heard = build(SPECS["gpt2"]), []
    first = model.get_submodule("stack.blocks.0.0.branch.q")
    first.register_forward_hook(lambda *_: heard.append(1))
    products(model, monkeypatch, 256)
    assert heard == [1]


def test_for_few_positions_weights_are_not_copied(monkeypatch):
    model = build(SPECS["gpt2"]).eval()
    joined = []
    monkeypatch.setattr(torch, "cat", lambda *given, **_: joined.append(given) or 1 / 0)
    with torch.no_grad():
        model(IDS[:6])
    assert not joined
