"""Twins: the same numbers and gradients, the same weights, and whoever listens is heard."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from anyformer.laws.cases import case, each, pooled
from anyformer.laws.specs import sample
from anyformer.model.model import Model
from anyformer.parts.twin import Twin, heard


@pytest.mark.parametrize("seed", range(30))
def test_a_twin_gives_the_same_outputs_and_gradients(seed):
    asked = case(sample(seed), seed)
    model = asked.model.train()
    weights = [p for p in model.parameters() if p.requires_grad]
    found = []
    for reader in (model, Twin(formal=(Model,)).of(model)):
        torch.manual_seed(0)  # dropout
        out = replace(asked, model=reader)()
        loss = sum(t.square().sum() for t in (*each(out), *pooled(out)))
        assert isinstance(loss, torch.Tensor)
        found.append((loss, torch.autograd.grad(loss, weights, allow_unused=True)))
    (one, before), (other, after) = found
    assert torch.equal(one, other)
    for x, y in zip(before, after, strict=True):
        assert (x is None) == (y is None)
        assert x is None or torch.equal(x, y)


def test_who_listens_is_heard():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3), nn.GELU()))
    said: list[str] = []
    model[1][0].register_forward_hook(lambda *_: said.append("inner"))
    twin = Twin(formal=(nn.Sequential,)).of(model)
    model.register_forward_hook(lambda *_: said.append("outer"))  # later, on a formal one
    twin(torch.ones(1, 2))
    assert said == ["inner", "outer"]
    assert heard(model[1][0]) and twin[1][0] is model[1][0]
    assert type(twin[0]) is not nn.Linear and twin[0].weight is model[0].weight
