"""Replaced-token detection: the generator's shape, shared tables, labels and sums."""

import numpy as np
import pytest
import torch

from anyformer import recipe
from anyformer.errors import InputError
from anyformer.objectives.base import IGNORED
from anyformer.objectives.replaced import ReplacedToken, generator_of, sample
from tests.objectives import samples as T
from tests.objectives.stepping import batch_of, check_step, learns, trainee_of

TOK = T.tokenizer("bert")
SIZES = {"dim": 16, "depth": 2, "heads": 4, "vocab": len(TOK), "length": 24, "dropout": 0.0}
SPEC = recipe("electra", width=8, **SIZES)


def batch():
    rows = [*T.text_rows(TOK, 22, 3).rows[:2], T.text_rows(TOK, 22, 3).rows[2][:15]]
    return batch_of(ReplacedToken().bind(TOK, SPEC), T.Rows(rows))


def test_the_papers_generators():
    for name, dim, heads, size in (
        ("electra-small", 64, 1, 0.25),
        ("electra-base", 256, 4, 1 / 3),
        ("electra-large", 256, 4, 0.25),
    ):
        spec = recipe(name)
        made = generator_of(spec, size)
        attention, feed = (sub.branch for sub in made.stack.block)
        assert (made.dim, attention.heads, feed.hidden) == (dim, heads, 4 * dim)
        assert (
            made.embed.dim == (spec.embed.dim or spec.dim) and made.stack.depth == spec.stack.depth
        )


def test_a_seventh_of_a_million_tokens_is_masked():
    rows = T.drawn_rows(TOK, 1000, 1000)
    objective = ReplacedToken().bind(TOK, SPEC)
    (mask,) = TOK.need("mask")
    masked = kept = 0
    for i in range(1000):
        found = objective.example(T.Rows(rows), i, T.rng(0, i))
        chosen = found["labels"] != IGNORED
        masked += int(chosen.sum())
        kept += int((found["input_ids"][chosen] != mask).sum())
    assert abs(masked / 1e6 - 0.15) < 0.001 and kept == 0


def test_tables_are_one_parameter_and_learn_from_both():
    trainee = trainee_of(ReplacedToken().bind(TOK, SPEC), SPEC)
    generator, model = trainee.beside.body, trainee.model
    assert generator.embed.token is model.embed.token
    assert generator.embed.position is model.embed.position
    names = [name for name, _ in trainee.named_parameters()]
    assert len([n for n in names if n.endswith("embed.token.weight")]) == 1
    result = trainee(batch())
    for term in ("generator", "detection"):
        weight = model.embed.token.weight
        (grad,) = torch.autograd.grad(result.losses[term], weight, retain_graph=True)
        assert grad.abs().sum() > 0
    apart = trainee_of(ReplacedToken(share=False).bind(TOK, SPEC), SPEC)
    assert apart.beside.body.embed.token is not apart.model.embed.token


def test_detection_does_not_reach_the_generator():
    trainee = trainee_of(ReplacedToken(share=False).bind(TOK, SPEC), SPEC)
    own = list(trainee.beside.parameters())
    loss = trainee(batch()).losses["detection"]
    assert all(g is None for g in torch.autograd.grad(loss, own, allow_unused=True))


def test_samples_that_are_the_original_count_as_not_replaced(monkeypatch):
    objective, given = ReplacedToken().bind(TOK, SPEC), batch()
    trainee = trainee_of(objective, SPEC).eval()
    labels = given["labels"]
    asked = labels[labels != IGNORED]
    seen = []
    hook = trainee.model.register_forward_pre_hook(
        lambda _, args, named: seen.append(named["input_ids"]), with_kwargs=True
    )
    for drawn, replaced in ((asked, 0), ((asked + 1) % len(TOK), len(asked))):
        monkeypatch.setattr("anyformer.objectives.replaced.sample", lambda _, drawn=drawn: drawn)
        assert int(trainee(given).metrics["recall"][1]) == replaced
        torch.testing.assert_close(seen[-1][labels != IGNORED], drawn)
        same = labels == IGNORED
        torch.testing.assert_close(seen[-1][same], given["input_ids"][same])
    hook.remove()


def test_counts_gradients_and_learning():
    given, objective = batch(), ReplacedToken().bind(TOK, SPEC)
    counts = {name: int(n) for name, n in objective.counts(given).items()}
    assert counts["detection"] == int(given["attention_mask"].sum())
    assert counts["generator"] == int((given["labels"] != IGNORED).sum())
    trainee = trainee_of(objective, SPEC)
    check_step(trainee, given)
    first, last = learns(trainee, given)
    assert last < first


def test_sampling_follows_the_chances_and_the_seed():
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log().expand(40000, 3)
    torch.manual_seed(0)
    drawn = sample(logits)
    shares = torch.bincount(drawn) / len(drawn)
    np.testing.assert_allclose(shares.numpy(), [0.5, 0.3, 0.2], atol=0.01)
    torch.manual_seed(0)
    assert torch.equal(sample(logits), drawn)


def test_what_it_needs_is_told():
    with pytest.raises(InputError, match="needs a model with the head Detect"):
        ReplacedToken().bind(TOK, recipe("bert", **SIZES))
    assert ReplacedToken().fit(recipe("bert", **SIZES)).head is not None
    with pytest.raises(InputError, match="no mask token"):
        ReplacedToken().bind(
            T.tokenizer("gpt2"), recipe("electra", width=8, **{**SIZES, "vocab": 900})
        )
