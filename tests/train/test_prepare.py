"""Recomputed and compiled blocks give what plain ones give."""

import copy

import pytest
import torch
from torch import nn

from anyformer import spec as S
from anyformer.errors import SpecError
from anyformer.model.model import build
from anyformer.model.stack import Block
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


NARROW = {"precision": "bfloat16", "stream": "bfloat16"}


@pytest.mark.parametrize("asked", [{"compile": True}, NARROW])
def test_a_reversible_stack_is_not_changed_in_silence(asked):
    with pytest.raises(SpecError, match=r"(compile|stream)=.* reversible"):
        prepare(build(spec(**{"stack.reversible": True, "dropout": 0.0})), settings(**asked))


def _streamed(model, mixed):
    """What a model's blocks give, and its loss."""
    ids, found = torch.randint(0, VOCAB, (2, LENGTH)), []
    hear = lambda block, given, out: found.append(out.dtype)
    held = [block.register_forward_hook(hear) for block in model.stack.blocks]
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
        loss = model(ids, labels=ids).loss
    loss.backward()
    for one in held:
        one.remove()
    return found, loss.item()


@pytest.mark.parametrize("recompute", [False, True])
def test_sums_between_blocks_are_16_bits_where_that_is_asked(recompute):
    torch.manual_seed(0)
    plain = build(spec(dropout=0.0)).train()
    narrow = copy.deepcopy(plain)
    prepare(narrow, settings(**NARROW, recompute=recompute))
    torch.manual_seed(1)
    wide, wanted = _streamed(plain, True)
    torch.manual_seed(1)
    found, loss = _streamed(narrow, True)
    assert {*wide} == {torch.float32} and {*found} == {torch.bfloat16}
    assert loss != wanted and abs(loss - wanted) < 0.02
    for a, b in zip(plain.parameters(), narrow.parameters(), strict=True):
        assert b.grad.dtype == torch.float32
        assert (a.grad - b.grad).norm() <= 0.05 * a.grad.norm() + 1e-4
    torch.manual_seed(1)
    assert {*_streamed(narrow, False)[0]} == {torch.float32}  # without autocast as it is


def test_a_copy_of_a_recomputed_model_has_weights_of_its_own():
    model = build(spec(dropout=0.0)).train()
    prepare(model, settings(recompute=True))
    other = copy.deepcopy(model)
    ids = torch.randint(0, VOCAB, (2, LENGTH))
    other(ids, labels=ids).loss.backward()
    assert all(p.grad is None for p in model.parameters())
    assert all(p.grad is not None for p in other.stack.parameters())


def test_torch_2_11_shards_blocks():
    """It refuses lists of modules, whether they have a forward or not."""
    assert not issubclass(Block, nn.ModuleList | nn.ModuleDict)


COMPILED = {
    "gpt2": {},
    "gpt3": {},  # a window in every other block
    "modernbert": {},
    "encoder": {},
    "deberta-v3": {},
    "llama": {"kv_heads": 2},
}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo's own look
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_blocks_have_the_gradients_of_others(name, monkeypatch):
    """With padding, whose mask every block reads."""
    plain = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f: plain(f, backend="aot_eager"))
    torch._dynamo.reset()
    torch.manual_seed(0)
    sizes = {"dim": 16, "depth": 3, "heads": 4, "vocab": 30}
    model = build(recipe(name, **sizes, **COMPILED[name])).eval()  # without dropout
    other, ids = copy.deepcopy(model), torch.arange(24).view(2, 12) % 30
    keep = torch.ones(2, 12, dtype=torch.bool)
    keep[1, 9:] = False
    prepare(other, settings(compile=True))
    for one in (model, other):
        one(ids, attention_mask=keep).logits[keep].square().mean().backward()
    for (key, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        if p.grad is not None:
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-6, msg=key)
