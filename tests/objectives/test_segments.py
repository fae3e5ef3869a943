"""Long rows, a segment at a time with a memory of those before it."""

import numpy as np
import pytest
import torch

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.objectives.base import IGNORED
from anyformer.objectives.registry import default_for
from anyformer.objectives.segments import InTurn, Segments
from anyformer.recipes import recipe
from anyformer.train.measure import evaluate
from anyformer.train.ranks import alone
from anyformer.train.settings import Settings
from anyformer.train.step import Stepper
from tests.objectives.samples import Rows, tokenizer
from tests.objectives.stepping import batch_of, check_step, trainee_of

TOK = tokenizer("gpt2")
SIZES = {"dim": 16, "depth": 2, "heads": 2, "hidden": 24, "vocab": len(TOK), "dropout": 0.0}
ROWS = Rows([np.random.default_rng(i).integers(0, len(TOK), 25) for i in range(3)])


def small(memory=8, **options):
    return recipe("transformer-xl", memory=memory, **SIZES, **options)


def made(plan=Segments(segments=3), spec=None):
    spec = small() if spec is None else spec
    return trainee_of(plan.bind(TOK, spec), spec)


def grads(trainee):
    return {name: p.grad.clone() for name, p in trainee.named_parameters()}


def test_a_row_holds_all_segments_and_one_token_more():
    objective = Segments(segments=3).bind(TOK, small())
    assert objective.length(8) == 25
    batch = batch_of(objective, ROWS)
    pieces = objective.pieces(batch)
    assert [p["input_ids"].shape for p in pieces] == [(3, 8)] * 3
    assert torch.equal(torch.cat([p["labels"] for p in pieces], 1), batch["labels"])
    assert int(objective.counts(batch)["tokens"]) == 3 * 24


def test_the_pieces_of_a_step_sum_up_to_the_row():
    """Backwards after each segment: the same gradients, since none flow through the memory."""
    trainee = made()
    batch = batch_of(trainee.objective, ROWS)
    check_step(trainee, batch)
    wanted = grads(trainee)
    trainee.zero_grad()
    carry, graphs = {}, []
    for piece in trainee.objective.pieces(batch):
        result = trainee({**piece, **carry})
        carry = result.carry
        graphs += [x.requires_grad for x in carry["mems"].hidden.values()]
        (result.losses["tokens"] / 72).backward()
    assert not any(graphs) and len(graphs) == 6
    for name, found in grads(trainee).items():
        assert torch.allclose(found, wanted[name], atol=1e-6), name


def test_a_step_of_training_reads_the_segments_in_turn():
    trainee = made()
    batch = batch_of(trainee.objective, ROWS)
    stepper = Stepper(alone(trainee), Settings(steps=2, batch=3, clip=None), torch.device("cpu"))
    told = stepper.run(0, [batch], 0.0, False).read()
    with torch.no_grad():
        result = trainee(batch)
    assert told["loss"] == pytest.approx(float(result.losses["tokens"]) / 72, rel=1e-6)


def test_only_the_first_segment_is_read_without_a_memory():
    trainee = made().eval()
    batch = batch_of(trainee.objective, ROWS)
    logits = []
    mems = None
    for piece in batch["input_ids"].split(8, 1):
        out = trainee.model(piece, mems=mems, return_mems=True)
        mems = out.mems
        logits.append(out.logits)
    wanted = torch.nn.functional.cross_entropy(
        torch.cat(logits, 1).flatten(0, 1), batch["labels"].flatten(), reduction="sum"
    )
    assert trainee(batch).losses["tokens"].item() == pytest.approx(wanted.item(), rel=1e-6)
    assert mems.length == 8


@pytest.mark.parametrize("memory", [0, 4, 16, 64])
def test_evaluation_may_remember_more_or_less(memory):
    trainee = made(Segments(segments=3, eval_memory=memory))
    other = made(Segments(segments=3), small(memory) if memory else None)
    if not memory:
        other.objective.memory = other.objective.eval_memory = 0
    other.model.load_state_dict(trainee.model.state_dict())
    given = Settings(batch=3)
    assert evaluate(trainee, ROWS, given)["loss"] == evaluate(other, ROWS, given)["loss"]
    batch = batch_of(trainee.objective, ROWS)
    with torch.no_grad():
        training, evaluating = trainee.train()(batch), trainee.eval()(batch)
    same = torch.equal(training.losses["tokens"], evaluating.losses["tokens"])
    assert not same  # as it was trained: with 8


def test_same_length_hides_what_is_farther_than_the_memory():
    plan = Segments(segments=3, eval_memory=5, same_length=True)
    trainee = made(plan).eval()
    window = made(Segments(segments=3, eval_memory=5), small(**{"stack.block.0.branch.window": 5}))
    window.eval().model.load_state_dict(trainee.model.state_dict())
    batch = batch_of(trainee.objective, ROWS)
    with torch.no_grad():
        assert torch.equal(trainee(batch).losses["tokens"], window(batch).losses["tokens"])


@pytest.mark.parametrize(
    ("plan", "spec", "message"),
    [
        (Segments(), small(0), "remembers no segments: set stack.recurrence, or memory="),
        (Segments(eval_memory=0, same_length=True), small(), "same_length sees eval_memory"),
        (Segments(), recipe("bert", dim=16, depth=1, heads=2, vocab=len(TOK)), "for decoders"),
    ],
)
def test_what_does_not_fit_is_refused(plan, spec, message):
    with pytest.raises(InputError, match=message):
        plan.bind(TOK, plan.fit(spec))


def test_transformer_xl_is_trained_so():
    assert default_for("transformer-xl") == Segments()
    assert type(default_for("transformer-xl", small(0))).__name__ == "Causal"
    apart = Segments(memory=0).bind(TOK, small(0))
    assert apart.memory == apart.eval_memory == 0
    assert S.from_dict(S.to_dict(Segments(memory=3))) == Segments(memory=3)


def test_few_labels_of_a_row_stay_with_their_segments():
    objective = InTurn(segments=2, memory=4, eval_memory=4)
    labels = torch.full((1, 200), IGNORED)
    labels[0, 3] = 5
    batch = objective.placed({"input_ids": torch.ones(1, 200).long(), "labels": labels})
    pieces = objective.pieces(batch)
    assert [int((piece["labels"] != IGNORED).sum()) for piece in pieces] == [1, 0]
