"""Distillation: terms, a teacher that isn't trained or saved, layers taken out of two."""

import pytest
import torch

from anyformer import build, recipe
from anyformer.errors import InputError
from anyformer.objectives.causal import Causal
from anyformer.objectives.distill import Distillation, initialise
from anyformer.spec import from_dict, to_dict
from tests.objectives import samples as T
from tests.objectives.stepping import batch_of, check_step, learns, loss_of, trainee_of

TOK = T.tokenizer("bert")
SIZES = {"dim": 16, "heads": 2, "vocab": len(TOK), "length": 24, "dropout": 0.0}
PLAN = Distillation()
STUDENT = PLAN.fit(recipe("distilbert", depth=2, **SIZES))


def teacher(depth=4, **changes):
    torch.manual_seed(1)
    return build(PLAN.fit(recipe("bert", depth=depth, **{**SIZES, **changes})))


def bound(plan=PLAN, model=None):
    return plan.bind(TOK, STUDENT, teacher=model or teacher())


def test_a_twin_of_the_teacher_has_nothing_to_learn_but_the_text():
    twin = teacher(depth=4)
    objective = PLAN.bind(TOK, twin.spec, teacher=twin)
    trainee = trainee_of(objective, twin.spec)
    trainee.model.load_state_dict(twin.state_dict())
    losses = trainee(batch_of(objective, T.text_rows(TOK, 22, 3))).losses
    assert float(losses["soft"].detach()) == pytest.approx(0.0, abs=1e-4)
    assert float(losses["cosine"].detach()) == pytest.approx(0.0, abs=1e-4)
    assert float(losses["hard"].detach()) > 1.0


def test_the_teacher_is_not_trained_saved_or_put_into_training_mode():
    model = teacher()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    trainee = trainee_of(bound(model=model), STUDENT).train()
    assert not any(name.startswith("beside") for name in trainee.state_dict())
    assert not list(trainee.beside.parameters()) and not model.training
    given = batch_of(trainee.objective, T.text_rows(TOK, 22, 3))
    check_step(trainee, given)
    first, last = learns(trainee, given)
    assert last < first
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_the_weights_of_the_paper_and_terms_that_are_left_out():
    assert bound().weights == {"soft": 5.0, "hard": 2.0, "cosine": 1.0}
    plan = Distillation(cosine=0.0)
    narrow = teacher(dim=32)
    objective = bound(plan, narrow)
    loss, result = loss_of(
        trainee_of(objective, STUDENT), batch_of(objective, T.text_rows(TOK, 22, 2))
    )
    assert set(result.losses) == {"soft", "hard"} and torch.isfinite(loss)
    with pytest.raises(InputError, match="set cosine=0"):
        trainee_of(bound(model=narrow), STUDENT)


def test_students_begin_with_every_other_layer():
    torch.manual_seed(3)
    student, model = build(STUDENT), teacher()
    assert initialise(student, model) == ()
    for ours, theirs in ((0, 0), (1, 2)):
        want = model.stack.blocks[theirs].state_dict()
        got = student.stack.blocks[ours].state_dict()
        assert all(torch.equal(want[k], got[k]) for k in want)
    assert torch.equal(student.embed.token.weight, model.embed.token.weight)
    initialise(student, model, layers=(1, 3))
    want, got = model.stack.blocks[3].state_dict(), student.stack.blocks[1].state_dict()
    assert all(torch.equal(want[k], got[k]) for k in want)
    with pytest.raises(InputError, match=r"name 2 of the teacher's layers 0\.\.3"):
        initialise(student, model, layers=(0, 4))
    with pytest.raises(InputError, match="same widths"):
        initialise(student, teacher(dim=32))
    bare = build(recipe("bert", depth=4, **SIZES))
    assert all(name.startswith("head.") for name in initialise(student, bare))
    begun = trainee_of(bound(Distillation(begin=True), model), STUDENT).model
    assert torch.equal(begun.embed.token.weight, model.embed.token.weight)


def test_a_teacher_from_a_folder_and_one_of_another_vocabulary(tmp_path):
    model = teacher()
    model.save_pretrained(tmp_path / "teacher")
    plan = Distillation(teacher=str(tmp_path / "teacher"))
    assert from_dict(to_dict(plan)) == plan
    trainee = trainee_of(plan.bind(TOK, STUDENT), STUDENT)
    ids = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(trainee.beside(input_ids=ids).logits, model.eval()(ids).logits)
    with pytest.raises(InputError, match="one vocabulary"):
        trainee_of(bound(model=teacher(vocab=len(TOK) + 8)), STUDENT)
    with pytest.raises(InputError, match="no head over its vocabulary"):
        trainee_of(bound(model=build(recipe("bert", depth=2, **SIZES))), STUDENT)
    with pytest.raises(InputError, match="needs a teacher"):
        PLAN.bind(TOK, STUDENT)


def test_a_decoder_learns_from_a_decoder():
    tok = T.tokenizer("gpt2")
    sizes = {**SIZES, "vocab": len(tok)}
    torch.manual_seed(0)
    large, spec = build(recipe("gpt2", depth=2, **sizes)), recipe("gpt2", depth=1, **sizes)
    objective = Distillation(of=Causal()).bind(tok, spec, teacher=large)
    check_step(trainee_of(objective, spec), batch_of(objective, T.text_rows(tok, 23, 2)))
