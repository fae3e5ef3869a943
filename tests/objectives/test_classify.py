"""Classification: labels of every kind, heads for every kind of model, predictions and scores."""

import numpy as np
import pytest
import torch

from anyformer import recipe
from anyformer.errors import InputError
from anyformer.objectives.classify import Classification
from anyformer.objectives.task import evaluate, labels_of, predict
from anyformer.spec import from_dict, to_dict
from tests.objectives import samples as T
from tests.objectives.stepping import batch_of, check_step, finetuned, trainee_of

SIZES = {"dim": 16, "depth": 1, "heads": 2, "dropout": 0.0}
TEXTS = ["the value is a string", "an integer", "a list of objects", "the class", "Return it"]
RECORDS = T.Records([{"text": t, "label": "ab"[i % 2]} for i, t in enumerate(TEXTS)])
PLAN = Classification(labels=("a", "b"))
FAMILIES = {"bert": "bert", "roberta": "roberta", "gpt2": "gpt2", "bart": "bart", "t5": "t5"}


def spec_of(name, plan=PLAN):
    tok = T.tokenizer(name)
    extra = {} if name == "t5" else {"length": 32}
    return plan.fit(recipe(FAMILIES[name], vocab=len(tok), **extra, **SIZES)), tok


@pytest.mark.parametrize("name", FAMILIES)
def test_every_kind_of_model_learns_labels(name):
    spec, tok = spec_of(name)
    task = PLAN.bind(tok, spec)
    check_step(trainee_of(task, spec), batch_of(task, RECORDS))
    model = finetuned(task, spec, RECORDS)
    assert predict(task, model, RECORDS, batch=2) == predict(task, model, RECORDS, batch=5)
    assert evaluate(task, model, RECORDS)["accuracy"] > 0.5


def test_padding_changes_no_answer():
    for name in ("bert", "gpt2", "bart"):
        spec, tok = spec_of(name)
        task, model = PLAN.bind(tok, spec), trainee_of(PLAN.bind(tok, spec), spec).model.eval()
        rows = [task.features(record)[0] for record in RECORDS]
        with torch.no_grad():
            together = task.answer(model, rows)
            alone = [task.answer(model, [row])[0] for row in rows]
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a["logits"], b["logits"], atol=1e-5)


def test_many_labels_and_numbers():
    many = Classification(labels=("x", "y", "z"), answers="many", label="all")
    records = T.Records([{"text": t, "all": ["x", "z"][: i % 3]} for i, t in enumerate(TEXTS)])
    spec, tok = spec_of("bert", many)
    task = many.bind(tok, spec)
    batch = batch_of(task, records, 5)
    assert batch["labels"].tolist()[:3] == [[0, 0, 0], [1, 0, 0], [1, 0, 1]]
    assert int(task.counts(batch)["classes"]) == 15
    model = finetuned(task, spec, records, steps=40)
    assert evaluate(task, model, records)["f1 micro"] > 0.5
    numbers = Classification(answers="numbers", label="stars")
    records = T.Records([{"text": t, "stars": str(i / 2)} for i, t in enumerate(TEXTS)])
    spec, tok = spec_of("bert", numbers)
    assert spec.head.count == 1
    task = numbers.bind(tok, spec)
    model = finetuned(task, spec, records, steps=60)
    assert evaluate(task, model, records)["pearson"] > 0.8


def test_pairs_of_texts_have_token_types():
    plan = Classification(labels=("a", "b"), text="first", pair="second")
    spec, tok = spec_of("bert", plan)
    row = plan.bind(tok, spec).features({"first": "the value", "second": "a string"})[0]
    assert row["token_type_ids"].tolist()[0] == 0 and row["token_type_ids"].tolist()[-1] == 1
    assert (row["input_ids"] == tok.need("sep")[0]).sum() == 2
    spec, tok = spec_of("roberta", plan)
    assert set(plan.bind(tok, spec).features({"first": "a", "second": "b"})[0]) == {"input_ids"}


def test_long_texts_are_cut_to_the_models_positions():
    spec, tok = spec_of("bert")
    long = PLAN.bind(tok, spec).features({"text": "word " * 200})[0]["input_ids"]
    assert len(long) == 32 and long[-1] == tok.need("sep")[0]
    short = Classification(labels=("a", "b"), length=8).bind(tok, spec)
    assert len(short.features({"text": "word " * 200})[0]["input_ids"]) == 8


def test_labels_by_name_number_and_from_records():
    spec, tok = spec_of("bert")
    task = PLAN.bind(tok, spec)
    assert int(task.classes.target({"label": "b"})) == int(task.classes.target({"label": 1})) == 1
    assert labels_of([{"label": 10}, {"label": 9}, {"label": 10}]) == ("9", "10")
    assert labels_of([{"label": ["b", "a"]}, {"label": ["c"]}]) == ("a", "b", "c")
    assert from_dict(to_dict(PLAN)) == PLAN


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (
            {"id": 7, "text": "x", "label": "c"},
            "record 7 has the label 'c'; known labels: 'a', 'b'",
        ),
        ({"text": "x", "label": 2}, "the record with text='x'.* has the label 2"),
        ({"text": "x"}, "has no 'label'; it has text"),
        ({"id": 1, "text": 5, "label": "a"}, "'text' must be a text, not int"),
    ],
)
def test_bad_records_are_named(record, told):
    spec, tok = spec_of("bert")
    with pytest.raises(InputError, match=told):
        PLAN.bind(tok, spec).example(T.Records([record]), 0, T.rng())


def test_what_it_needs_is_told():
    spec, tok = spec_of("bert")
    with pytest.raises(InputError, match="labels aren't named"):
        Classification().bind(tok, spec)
    with pytest.raises(InputError, match="3 labels are named and the model's head has 2"):
        Classification(labels=("a", "b", "c")).bind(tok, spec)
    with pytest.raises(InputError, match="needs a model with the head Classes"):
        PLAN.bind(tok, recipe("bert", vocab=len(tok), length=32, **SIZES))
    task = Classification(answers="numbers").bind(tok, spec)
    with pytest.raises(InputError, match="must be a number, not 'much'"):
        task.example(T.Records([{"text": "x", "label": "much"}]), 0, T.rng())
