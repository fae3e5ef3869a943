"""Recomputed and compiled blocks give what plain ones give."""

import copy

import pytest
import torch

from anyformer import spec as S
from anyformer.errors import SpecError
from anyformer.model.model import build
from anyformer.recipes import recipe
from anyformer.train.prepare import prepare
from tests.train.tiny import LENGTH, VOCAB, settings, spec

ATTENTION = "stack.block.0.branch."
SPECS = {
    "plain": lambda: spec(),
    "carried scores": lambda: spec(**{ATTENTION + "carry": True}),
    "bias": lambda: spec(**{"stack.relative": (S.Buckets(bidirectional=False),)}),
    "shared": lambda: spec(**{"stack.schedule": S.Shared(unique=1)}),
    "encoder and decoder": lambda: recipe("t5", dim=16, depth=2, heads=2, vocab=VOCAB),
}


def _gradients(made: S.Model, **options):
    torch.manual_seed(0)
    model = build(made).train()
    prepare(model, settings(**options))
    torch.manual_seed(1)
    ids = torch.randint(0, VOCAB, (2, LENGTH))
    loss = model(ids, labels=ids).loss
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in model.named_parameters()}


@pytest.mark.parametrize("name", SPECS)
def test_a_block_computed_again_has_the_same_gradients(name):
    made = SPECS[name]()
    loss, wanted = _gradients(made)
    again, found = _gradients(made, recompute=True)
    assert torch.equal(loss, again)
    assert wanted.keys() == found.keys()
    for key, gradient in wanted.items():
        torch.testing.assert_close(found[key], gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo's own look at it
@pytest.mark.parametrize("recompute", [False, True])
def test_a_compiled_block_has_the_same_gradients(recompute, monkeypatch):
    compiled, graphs = torch.compile, []

    def counted(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda f: compiled(f, backend=counted))
    torch._dynamo.reset()
    made = spec(depth=4, dropout=0.0)
    loss, wanted = _gradients(made)
    again, found = _gradients(made, compile=True, recompute=recompute)
    torch.testing.assert_close(loss, again)
    for key, gradient in wanted.items():
        torch.testing.assert_close(found[key], gradient, rtol=1e-4, atol=1e-6)
    assert 1 <= len(graphs) < 4  # blocks share a graph


def test_evaluation_is_left_alone():
    model = build(spec()).eval()
    ids = torch.randint(0, VOCAB, (2, LENGTH))
    wanted = model(ids).logits
    prepare(model, settings(recompute=True))
    assert torch.equal(model(ids).logits, wanted)
    kept = model(ids, use_cache=True)
    assert kept.past_key_values is not None


def test_a_reversible_stack_is_not_compiled_in_silence():
    with pytest.raises(SpecError, match="reversible"):
        prepare(build(spec(**{"stack.reversible": True, "dropout": 0.0})), settings(compile=True))


def test_a_copy_of_a_recomputed_model_has_weights_of_its_own():
    model = build(spec(dropout=0.0)).train()
    prepare(model, settings(recompute=True))
    other = copy.deepcopy(model)
    ids = torch.randint(0, VOCAB, (2, LENGTH))
    other(ids, labels=ids).loss.backward()
    assert all(p.grad is None for p in model.parameters())
    assert all(p.grad is not None for p in other.stack.parameters())
