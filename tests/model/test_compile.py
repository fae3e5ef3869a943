"""Models are one graph: torch.compile takes each whole, and the result is the same."""

import pytest
import torch

from anyformer import spec as S
from anyformer.model.model import build
from anyformer.ops import attend
from anyformer.recipes import recipe

TINY = {"dim": 32, "depth": 2, "heads": 4, "vocab": 50, "length": 64}
ATTENTION = "stack.block.0.branch."
SWITCHES = {
    "plain": {},
    "rotary": {ATTENTION + "rotary": S.Rotary()},
    "T5 bias": {"stack.relative": (S.Buckets(bidirectional=False),)},
    "Transformer-XL": {ATTENTION + "relative": (S.XL(),)},
    "untied": {"stack.untied": S.Untied(length=64, cls=True)},
    "talking heads": {ATTENTION + "talking": "both"},
    "top-k": {ATTENTION + "weigh": S.TopK(k=4)},
    "carry and memory": {ATTENTION + "carry": True, ATTENTION + "memory": 3},
    "memory tokens": {"embed.memory": 3},
    "lora": {"stack.schedule": S.Shared(unique=1), "stack.lora": S.Lora(rank=2, bias=True)},
    "gated": {"stack.block.*.residual": S.Gated()},
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_model_is_one_graph(name: str) -> None:
    model = build(recipe("decoder", **TINY, **SWITCHES[name]))
    ids = torch.randint(0, 50, (2, 16))
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    expected, wanted = _learned(model, model(ids, labels=ids).loss)
    loss, found = _learned(model, compiled(ids, labels=ids).loss)
    assert torch.allclose(loss, expected)
    for key, grad in wanted.items():
        torch.testing.assert_close(found[key], grad, rtol=1e-4, atol=1e-6, msg=key)


def _learned(model: torch.nn.Module, loss: torch.Tensor) -> tuple[torch.Tensor, dict]:
    """A loss, and the gradients of it."""
    model.zero_grad()
    loss.backward()
    return loss.detach(), {key: p.grad.clone() for key, p in model.named_parameters()}


@pytest.mark.parametrize("fast", [False, True])
def test_a_model_is_one_graph_in_bfloat16(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attend, "FAST_BFLOAT16", fast)
    model = build(recipe("decoder", **TINY))
    ids = torch.randint(0, 50, (2, 64))
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.autocast("cpu", torch.bfloat16):
        loss, expected = compiled(ids, labels=ids).loss, model(ids, labels=ids).loss
    assert torch.allclose(loss, expected, rtol=1e-2)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
