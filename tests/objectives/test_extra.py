"""What loops add to the loss reaches training: terms, counts, weights, steps and evaluation."""

from dataclasses import replace

import pytest
import torch

from anyformer import spec as S
from anyformer.data.loader import Loader
from anyformer.errors import InputError
from anyformer.model.model import build
from anyformer.objectives.base import Trainee
from anyformer.objectives.causal import NextToken
from anyformer.objectives.losses import token_sum
from anyformer.train.measure import evaluate
from anyformer.train.ranks import alone
from anyformer.train.step import Stepper
from tests.objectives.stepping import loss_of
from tests.train.tiny import Bound, Numbers, settings, spec

CPU = torch.device("cpu")
HALTS = {
    "ponder": S.Act(cost=0.3),
    "exit": S.Exit(beta=0.3),
    "route": S.Route(cost=0.3),
    "experts": S.Route(choice="expert", cost=0.3, future=True),
}


class Tokens(NextToken):
    """Next tokens of rows of several lengths."""

    def example(self, samples, index, rng):
        ids = samples[index]["ids"]
        return {"input_ids": ids[:-1], "labels": ids[1:].copy()}


def looped(halt, **fields):
    given = spec(depth=4, dropout=0.0)
    stack = replace(given.stack, schedule=S.Shared(unique=2, order="cycle"))
    return S.check(replace(given, stack=replace(stack, loop=S.Loop(halt=halt, **fields))))


def trainee(halt, objective=None, **fields):
    torch.manual_seed(3)
    return Trainee(build(looped(halt, **fields)).double(), objective or Tokens(cross=True)).train()


def batch_of(objective, rows=4):
    examples = [objective.example(Numbers(ragged=True), i, None) for i in range(rows)]
    return objective.collate(examples)


@pytest.mark.parametrize("halt", HALTS)
def test_terms_counts_and_weights(halt):
    found = trainee(HALTS[halt])
    batch = batch_of(found.objective)
    name = "route" if halt == "experts" else halt
    assert dict(found.objective.weights) == {"tokens": 1.0, name: 0.3}
    assert found.objective.counts(batch)[name] == batch["attention_mask"].sum()
    loss, result = loss_of(found, batch)
    loss.backward()
    assert result.losses[name].requires_grad
    assert all(p.grad.any() for n, p in found.named_parameters() if "loop" in n)
    assert not found.model._forward_hooks


def test_exits_are_weighed_by_their_probability():
    found = trainee(S.Exit())
    batch = batch_of(found.objective)
    out = found.model(batch["input_ids"], attention_mask=batch["attention_mask"])
    logits, p = out.exits
    total = torch.zeros(())
    for t in range(2):
        for b in range(4):
            for n in range(batch["labels"].shape[1]):
                one = token_sum(logits[t, b, n : n + 1], batch["labels"][b, n : n + 1])
                total = total + p[b, n, t] * one
    torch.testing.assert_close(found(batch).losses["tokens"], total)
    found.eval()
    plain = token_sum(found.model(**{k: v for k, v in batch.items() if k != "labels"}).logits,
                      batch["labels"])  # fmt: skip
    torch.testing.assert_close(found(batch).losses["tokens"], plain)


@pytest.mark.parametrize("halt", ["ponder", "exit", "route", "experts"])
def test_pieces_of_a_step_are_one_step(halt):
    told, states = [], []
    for micro in (None, 1, 2):
        given = settings(batch=4, micro=micro)
        stepper = Stepper(alone(trainee(HALTS[halt])), given, CPU)
        loader = Loader(Numbers(ragged=True), stepper.spread.trainee.objective, 4, micro, seed=1)
        told.append([stepper.run(s, loader.step(s), 1.0, False).read() for s in range(2)])
        states.append(stepper.spread.trainee.state_dict())
    for other in (1, 2):
        for a, b in zip(told[0], told[other], strict=True):
            assert all(a[k] == pytest.approx(b[k], rel=1e-6) for k in a)
        for key, tensor in states[0].items():
            torch.testing.assert_close(states[other][key], tensor, rtol=1e-6, atol=1e-7, msg=key)


@pytest.mark.parametrize("halt", HALTS)
def test_evaluation_tells_the_terms(halt):
    found = evaluate(
        trainee(HALTS[halt], drawn="uniform"), Numbers(8, ragged=True), settings(batch=4)
    )
    name = "route" if halt == "experts" else halt
    assert found["loss"] == pytest.approx(found["loss/tokens"] + 0.3 * found[f"loss/{name}"])
    if name == "ponder":
        assert 1 < found["loss/ponder"] <= 3


def test_any_objective_takes_a_ponder_cost_and_only_those_of_tokens_exits():
    found = trainee(S.Act(), Bound())
    assert list(found.objective.weights) == ["next", "early", "ponder"]
    with pytest.raises(InputError, match="halt=Exit"):
        trainee(S.Exit(), Bound())
    with pytest.raises(InputError, match="alpha"):
        trainee(S.Exit(), Tokens(cross=True, alpha=1.5))(batch_of(Tokens(cross=True)))


def test_drawn_rounds_follow_the_step():
    given = settings(batch=4)
    runs = []
    for _ in range(2):
        stepper = Stepper(alone(trainee(None, inject="add", drawn="uniform", window=1)), given, CPU)
        loader = Loader(Numbers(), stepper.spread.trainee.objective, 4, seed=1)
        runs.append([stepper.run(s, loader.step(s), 1.0, False).read()["loss"] for s in range(4)])
    assert runs[0] == runs[1]
