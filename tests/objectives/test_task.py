"""What all tasks share: sums that add up over parts of a batch, modes, heads for every spec."""

import pytest
import torch

from anyformer import build, recipe
from anyformer.errors import InputError
from anyformer.objectives.heads import TASKS, head_for
from anyformer.objectives.multi_token import MultiToken
from anyformer.objectives.task import evaluate, predict
from anyformer.spec import check
from tests.objectives import (
    samples,
    test_answer,
    test_choose,
    test_classify,
    test_image,
    test_tag,
    test_to_text,
)
from tests.objectives.stepping import batch_of, loss_of, trainee_of

KINDS = (
    "encoder",
    "decoder",
    "encoder-decoder",
    "bert",
    "gpt2",
    "llama",
    "t5",
    "bart",
    "modernbert",
)


def _classes():
    spec, tok = test_classify.spec_of("bert")
    return test_classify.PLAN.bind(tok, spec), spec, test_classify.RECORDS


def _ahead():
    spec, tok = (
        recipe("gpt2", dim=16, depth=1, heads=2, vocab=700, length=24),
        samples.tokenizer("gpt2"),
    )
    return MultiToken(ahead=2).bind(tok, spec), spec, samples.text_rows(tok, 18, 3)


CASES = {
    "classes": _classes,
    "tags": lambda: (*test_tag.task_of("bert"), test_tag.RECORDS),
    "spans": lambda: (*test_answer.task_of(length=200, stride=16), test_answer.RECORDS),
    "choices": lambda: (*test_choose.task_of(), test_choose.RECORDS),
    "written": lambda: (*test_to_text.task_of("t5")[:2], test_to_text.RECORDS),
    "continued": lambda: (*test_to_text.task_of("gpt2")[:2], test_to_text.RECORDS),
    "images": lambda: (*test_image.task_of(), test_image.RECORDS),
    "ahead": _ahead,
}


@pytest.mark.parametrize("name", CASES)
def test_sums_and_counts_of_parts_are_those_of_the_whole(name):
    task, spec, records = CASES[name]()
    trainee = trainee_of(task, spec).eval()
    rows = [task.example(records, i, samples.rng(0, i)) for i in range(3)]
    with torch.no_grad():
        parts = [(task.counts(b), trainee(b)) for b in map(task.collate, (rows[:1], rows[1:]))]
        batch = task.collate(rows)
        counts, whole = task.counts(batch), trainee(batch)
    for term, value in whole.losses.items():
        torch.testing.assert_close(sum(r.losses[term] for _, r in parts), value)
        assert sum(int(c[term]) for c, _ in parts) == int(counts[term])
    for metric, pair in whole.metrics.items():
        for k in (0, 1):
            torch.testing.assert_close(sum(r.metrics[metric][k] for _, r in parts), pair[k])


@pytest.mark.parametrize("name", ["classes", "tags", "spans", "written", "images"])
def test_the_loss_is_the_models_own(name):
    task, spec, records = CASES[name]()
    trainee = trainee_of(task, spec).eval()
    batch = batch_of(task, records, 3)
    loss, _ = loss_of(trainee, batch)
    torch.testing.assert_close(loss, trainee.model(**batch).loss)


def test_evaluation_leaves_modes_and_gradients_as_they_were():
    task, spec, records = _classes()
    model = build(spec).train()
    model.head.eval()
    assert len(predict(task, model, records)) == len(records)
    assert set(evaluate(task, model, records)) == {"accuracy", "f1 macro", "matthews", "f1"}
    assert model.training and not model.head.training


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "task", [t for t in TASKS if t not in ("image-classification", "captioning")]
)
def test_every_spec_takes_the_head_of_every_task(task, kind):
    spec = recipe(kind, dim=16, depth=2, heads=2, vocab=50)
    made = check(head_for(task, spec, 3))
    assert head_for(task, made, 3) == made
    assert made.stack == spec.stack
    build(made)


def test_unknown_tasks_are_refused():
    with pytest.raises(InputError, match="did you mean 'classification'"):
        head_for("clasification", recipe("bert"))
