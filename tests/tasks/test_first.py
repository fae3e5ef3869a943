"""Less work where the first position alone is asked: the same logits, where that is right."""

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.tasks.first import First, narrowed, narrows
from tests.tasks.tiny import built

HEAD = S.Classes(count=3, hidden=16, act="tanh")
YES = ("bert", "roberta", "distilbert", "electra")


@pytest.mark.parametrize("name", YES)
@pytest.mark.parametrize("padded", [False, True])
def test_the_same_logits(name, padded):
    model = built(name, HEAD, "bert", length=40)
    assert narrows(model.spec)
    less = narrowed(model)
    assert less is not model and isinstance(less.stack.blocks[-1], First)
    assert not any(isinstance(block, First) for block in model.stack.blocks)
    ids = torch.randint(5, 100, (3, 12))
    mask = (torch.arange(12) < torch.tensor([12, 7, 3])[:, None]).long() if padded else None
    with torch.inference_mode():
        a, b = model(ids, attention_mask=mask), less(ids, attention_mask=mask)
    assert b.last_hidden_state.shape[1] == 1
    assert torch.allclose(a.logits, b.logits, atol=1e-5)
    assert torch.allclose(a.last_hidden_state[:, :1], b.last_hidden_state, atol=1e-5)
    assert all(p is q for p, q in zip(model.parameters(), less.parameters(), strict=True))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("head", S.Classes(count=2, pool="mean")),
        ("head", S.Project(size=2)),
        ("stack.block.0.branch.rotary", S.Rotary()),
        ("stack.block.0.branch.causal", True),
        ("stack.block.0.branch.window", 3),
        ("stack.block.0.branch.talking", "pre"),
        ("stack.block.0.place", "pre"),
        ("stack.relative", (S.ALiBi(),)),
        ("stack.schedule", S.Shared(unique=1)),
        ("embed.memory", 2),
    ],
)
def test_not_where_more_is_seen(path, value):
    spec = S.override(anyformer.recipe("bert", dim=16, depth=2, heads=2, vocab=50), "head", HEAD)
    assert narrows(spec) and not narrows(S.override(spec, path, value))
