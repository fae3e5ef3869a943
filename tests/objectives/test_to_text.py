"""Texts from texts: rows of both kinds of model that write, what is asked for, what is written."""

import pytest

from anyformer import recipe
from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.objectives.base import IGNORED
from anyformer.objectives.task import evaluate, predict
from anyformer.objectives.to_text import ToText
from tests.objectives import samples as T
from tests.objectives.stepping import batch_of, check_step, finetuned, trainee_of

PLAN = ToText(answer=12, context=16)
RECORDS = T.Records(
    [
        {"source": "the value of an object", "target": "a value"},
        {"source": "the import statement imports modules", "target": "import"},
        {"source": "lists", "target": "a list is a sequence"},
    ]
)
SIZES = {"dim": 32, "depth": 1, "heads": 2, "dropout": 0.0}


def task_of(name, plan=PLAN, **more):
    tok = T.tokenizer(name)
    extra = {"init.std": 0.2} if name == "t5" else {"length": 40}
    spec = plan.fit(recipe(name, vocab=len(tok), **extra, **SIZES))
    return plan.bind(tok, spec), spec, tok


@pytest.mark.parametrize(("name", "lr"), [("t5", 1e-2), ("bart", 1e-2), ("gpt2", 1e-2)])
def test_each_kind_of_model_learns_to_write(name, lr):
    task, spec, _ = task_of(name)
    check_step(trainee_of(task, spec), batch_of(task, RECORDS))
    model = finetuned(task, spec, RECORDS, steps=50, lr=lr)
    assert predict(task, model, RECORDS, batch=3) == predict(task, model, RECORDS, batch=1)
    assert evaluate(task, model, RECORDS)["rouge1"] > 0.6


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_encoder_decoders_read_the_source_and_answer_the_target(name):
    task, spec, tok = task_of(name, ToText(prefix="a: "))
    found = task.example(RECORDS, 0, T.rng())
    eos = tok.role_ids["eos"]
    assert tok.decode(found["input_ids"]) == "a: " + RECORDS[0]["source"]
    assert tok.decode(found["labels"]) == RECORDS[0]["target"]
    assert found["labels"][-1] == eos and found["decoder_input_ids"][0] == spec.start
    assert found["decoder_input_ids"][1:].tolist() == found["labels"][:-1].tolist()


def test_a_decoder_reads_once_what_it_begins_with():
    tok = T.tokenizer("bert")
    cls, sep = tok.need("cls", "sep")
    spec = S.override(recipe("bert2bert", vocab=len(tok), length=40, **SIZES), "start", cls)
    task = PLAN.bind(tok, spec)
    found = task.example(RECORDS, 0, T.rng())
    assert found["input_ids"][0] == cls and found["labels"][-1] == sep
    assert found["decoder_input_ids"].tolist() == [cls, *found["labels"][:-1].tolist()]
    assert cls not in found["labels"]
    model = finetuned(task, spec, RECORDS, steps=40, lr=1e-2)
    assert predict(task, model, RECORDS) == [record["target"] for record in RECORDS]


def test_decoders_learn_of_the_target_alone():
    task, _, tok = task_of("gpt2")
    found = task.example(RECORDS, 0, T.rng())
    labels, ids = found["labels"], found["input_ids"]
    asked = labels[labels != IGNORED]
    assert tok.decode(asked[:-1]) == RECORDS[0]["target"] and asked[-1] == tok.role_ids["eos"]
    source = task.features(RECORDS[0])[0]["input_ids"]
    assert ids[: len(source)].tolist() == source.tolist()
    assert (labels[: len(source) - 1] == IGNORED).all() and labels[len(source) - 1] != IGNORED
    assert tok.decode(source) == RECORDS[0]["source"] + "\n"


@pytest.mark.parametrize("name", ["t5", "bart", "gpt2"])
def test_long_texts_are_cut_and_still_end(name):
    task, _, tok = task_of(name)
    long = {"source": "word " * 100, "target": "other " * 100}
    found = task.example(T.Records([long]), 0, T.rng())
    labels = found["labels"][found["labels"] != IGNORED]
    assert len(labels) == 12 and labels[-1] == tok.role_ids["eos"]
    assert len(found["input_ids"]) <= (16 if name != "gpt2" else 40)


def test_languages_have_their_tokens():
    plan = ToText(source_lang="en", target_lang="fr", metric="bleu", answer=8)
    tok = T.tokenizer("m2m_100")
    spec = plan.fit(recipe("m2m-100", vocab=len(tok), **SIZES))
    found = plan.bind(tok, spec).example(RECORDS, 0, T.rng())
    assert found["input_ids"][0] == tok.id("__en__") and found["labels"][0] == tok.id("__fr__")
    assert found["labels"][-1] == found["input_ids"][-1] == tok.role_ids["eos"]
    task = plan.bind(tok, spec)
    model = trainee_of(task, spec).model
    assert set(evaluate(task, model, RECORDS)) == {"bleu"}


def test_what_it_needs_is_told():
    with pytest.raises(InputError, match="is for decoders"):
        task_of("bert")
    with pytest.raises(InputError, match="leave no source"):
        task_of("gpt2", ToText(answer=40))
    task, *_ = task_of("t5")
    with pytest.raises(InputError, match="has no 'target'"):
        task.example(T.Records([{"source": "x"}]), 0, T.rng())
    with pytest.raises(InputError, match="no 'target' to compare"):
        task.score(["x"], [{"source": "x"}])
