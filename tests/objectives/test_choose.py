"""Multiple choice: rows of sequences, records with fewer choices, labels in every form."""

import numpy as np
import pytest
import torch

from anyformer import recipe
from anyformer.errors import InputError
from anyformer.objectives.choose import MultipleChoice
from anyformer.objectives.task import evaluate, predict
from anyformer.spec import Double, override
from tests.objectives import samples as T
from tests.objectives.stepping import batch_of, check_step, finetuned, trainee_of

PLAN = MultipleChoice()
RECORDS = T.Records(
    [
        {"question": "What is it?", "choices": ["a string", "the class", "x"], "label": 1},
        {"question": "And this", "choices": ["an integer of size", "a list"], "label": "B"},
        {"question": "The value", "choices": ["a", "b", "module", "name"], "label": "module"},
    ]
)
SIZES = {"dim": 16, "depth": 1, "heads": 2, "dropout": 0.0, "length": 32}


def task_of(name="bert"):
    tok = T.tokenizer(name)
    spec = PLAN.fit(recipe(name, vocab=len(tok), **SIZES))
    return PLAN.bind(tok, spec), spec


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_model_learns_to_choose(name):
    task, spec = task_of(name)
    batch = batch_of(task, RECORDS)
    assert batch["input_ids"].shape[:2] == (3, 4) and batch["labels"].tolist() == [1, 1, 2]
    check_step(trainee_of(task, spec), batch)
    model = finetuned(task, spec, RECORDS, steps=40)
    assert evaluate(task, model, RECORDS)["accuracy"] >= 2 / 3


def test_missing_choices_are_never_taken_and_change_nothing():
    task, spec = task_of()
    model = trainee_of(task, spec).model.eval()
    rows = [task.features(record)[0] for record in RECORDS]
    with torch.no_grad():
        together = [row["logits"] for row in task.answer(model, rows)]
        alone = [task.answer(model, [row])[0]["logits"] for row in rows]
    for a, b, record in zip(together, alone, RECORDS, strict=True):
        count = len(record["choices"])
        np.testing.assert_allclose(a[:count], b, atol=1e-5)
        assert np.isneginf(a[count:]).all()


def test_a_head_that_writes_too_may_choose():
    tok = T.tokenizer("gpt2")
    spec = override(recipe("gpt2", vocab=len(tok), **SIZES), "head", Double())
    task = PLAN.bind(tok, PLAN.fit(spec))
    check_step(trainee_of(task, spec), batch_of(task, RECORDS))
    assert len(predict(task, trainee_of(task, spec).model, RECORDS)) == 3


def test_context_and_question_stand_together():
    tok = T.tokenizer("bert")
    plan = MultipleChoice(context="passage")
    task = plan.bind(tok, task_of()[1])
    record = {"passage": "the value", "question": "what", "choices": ["a", "b"], "label": "0"}
    text = tok.decode(task.features(record)[0]["input_ids"][0], skip_special=False)
    assert text.index("value") < text.index("what") < text.rindex("[SEP]")
    assert task.target(record) == 0


@pytest.mark.parametrize("label", [3, -1, "Z", "no such text"])
def test_bad_labels_are_named(label):
    with pytest.raises(InputError, match="none of its 3 choices: give a number from 0 to 2"):
        task_of()[0].target({**RECORDS[0], "label": label})


def test_bad_records_are_named():
    with pytest.raises(InputError, match="must be a list of texts, 2 or more"):
        task_of()[0].features({"question": "x", "choices": ["one"]})
    with pytest.raises(InputError, match="name context or question"):
        MultipleChoice(question=None).bind(T.tokenizer("bert"), task_of()[1])
