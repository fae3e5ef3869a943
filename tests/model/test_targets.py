"""Targets in place of labels: sums without all logits are those with them, gradients too."""

import pytest
import torch

from anyformer import recipe
from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model import heads
from anyformer.model.model import build
from anyformer.objectives.base import IGNORED, Result, Trainee
from anyformer.objectives.causal import NextToken

VOCAB = 90
SMALL = {"dim": 16, "depth": 2, "heads": 2, "vocab": VOCAB}
MODELS = {
    "decoder, tied": recipe("gpt2", **SMALL, length=32),
    "decoder, own weights, cap": S.override(
        recipe("llama", **SMALL, kv_heads=1, hidden=24), "head.cap", 3.0
    ),
    "encoder, behind a dense layer": S.override(
        recipe("bert", **SMALL, length=32),
        "head",
        S.Vocabulary(tied=True, bias=True, dense=True, norm=S.LayerNorm()),
    ),
    "encoder-decoder": recipe("t5", **SMALL, hidden=24),
}


class Tokens(NextToken):
    """Labels as they are given."""

    def __init__(self):
        super().__init__(cross=True)


def batch_of(spec, share=0.3):
    torch.manual_seed(1)
    ids = torch.randint(2, VOCAB, (3, 20))
    labels = torch.where(torch.rand(3, 20) < share, torch.randint(0, VOCAB, (3, 20)), IGNORED)
    name = "input_ids" if spec.encoder is None else "decoder_input_ids"
    beside = {} if spec.encoder is None else {"input_ids": ids.flip(1)}
    return {name: ids, **beside, "labels": labels}


def told(spec, batch, monkeypatch, large) -> tuple[Result, list[torch.Tensor]]:
    monkeypatch.setattr(heads, "LARGE", 0 if large else 1 << 60)
    torch.manual_seed(0)
    trainee = Trainee(build(spec).double().eval(), Tokens())
    result = trainee(batch)
    loss = result.losses["tokens"]
    weights = [p for p in trainee.parameters()]
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return result, [torch.zeros(1) if g is None else g for g in found]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("placed", [False, True])
def test_sums_without_all_logits_are_those_with_them(name, placed, monkeypatch):
    spec = MODELS[name]
    batch = batch_of(spec)
    wanted, grads = told(spec, batch, monkeypatch, large=False)
    batch = Tokens().placed(batch) if placed else batch
    assert ("targets_at" in batch) == placed
    found, slopes = told(spec, batch, monkeypatch, large=True)
    torch.testing.assert_close(found.losses["tokens"], wanted.losses["tokens"])
    assert [int(n) for n in found.metrics["accuracy"]] == [
        int(n) for n in wanted.metrics["accuracy"]
    ]
    for a, b in zip(slopes, grads, strict=True):
        torch.testing.assert_close(a, b)


def test_many_logits_are_not_made(monkeypatch):
    monkeypatch.setattr(heads, "LARGE", 0)
    spec = MODELS["decoder, tied"]
    batch = batch_of(spec)
    out = build(spec)(batch["input_ids"], targets=batch["labels"])
    assert out.logits is None and out.target_loss.shape == ()
    assert "target_loss" in out.keys() and "last_hidden_state" not in out.keys()


def test_in_float16_logits_are_there_so_that_a_scaled_loss_has_gradients(monkeypatch):
    monkeypatch.setattr(heads, "LARGE", 0)
    spec = MODELS["decoder, tied"]
    batch = batch_of(spec)
    with torch.autocast("cpu", torch.float16):
        out = build(spec)(batch["input_ids"], targets=batch["labels"])
    assert out.logits is not None and out.target_loss is None


def test_few_logits_are_there():
    spec = MODELS["decoder, tied"]
    batch = batch_of(spec)
    out = build(spec)(batch["input_ids"], targets=batch["labels"])
    assert out.logits.shape == (3, 20, VOCAB) and out.target_loss is None


def test_places_are_filled_up_with_what_counts_for_nothing():
    labels = torch.full((4, 1000), IGNORED)
    labels[0, :70] = 5
    at = Tokens().placed({"labels": labels})["targets_at"]
    assert len(at) == 128 and at[:70].tolist() == list(range(70))  # 64 at a time
    assert (labels.flatten()[at[70:]] == IGNORED).all()
    labels[:] = 5
    assert "targets_at" not in Tokens().placed({"labels": labels})


def test_smoothing_entmax_and_answers_of_rounds_take_the_logits():
    spec, batch = MODELS["decoder, tied"], {"labels": torch.zeros(1, 2)}
    assert "targets" in Tokens()._asked(spec, batch)
    for name, value in (("smoothing", 0.1), ("alpha", 1.5)):
        other = Tokens()
        setattr(other, name, value)
        assert other._asked(spec, batch) == {}
    rounds = S.override(spec, "stack.loop", S.Loop(halt=S.Exit()))
    assert Tokens()._asked(rounds, batch) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"targets_at": torch.zeros(1, dtype=torch.long)}, "give targets too"),
        ({"targets": torch.zeros(3, 4, dtype=torch.long)}, "don't go with ids of shape"),
        (
            {"targets": torch.zeros(3, 20, dtype=torch.long), "logits_to_keep": 1},
            "don't go with labels or logits_to_keep",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(given, message):
    spec = MODELS["decoder, tied"]
    with pytest.raises(InputError, match=message):
        build(spec)(batch_of(spec)["input_ids"], **given)


def test_targets_are_for_a_vocabulary():
    spec = S.override(MODELS["decoder, tied"], "head", S.Classes(count=3))
    with pytest.raises(InputError, match="head Vocabulary"):
        build(spec)(torch.ones(1, 3).long(), targets=torch.ones(1, 3).long())
