"""Fine-tuning from plain files: tasks, labels, what is kept, and what is refused."""

import csv
import json

import numpy as np
import pytest
import torch
import transformers

import anyformer
from anyformer import spec as S
from anyformer.data.train_tokenizer import train as train_tokenizer
from anyformer.errors import AnyformerError, InputError
from anyformer.objectives.about import plan_in
from anyformer.objectives.task import predict
from anyformer.train import finetune
from anyformer.train.begin import again
from anyformer.train.material import RecordSource, read
from anyformer.train.score import opened
from anyformer.train.tune import Tuning, prepare, tune, usual
from anyformer.train.works import TASKS, labels_there, work_of

SMALL = {"dim": 16, "depth": 1, "heads": 2}
GOOD, BAD, THINGS = ("fine", "lovely", "great"), ("poor", "dull", "awful"), ("film", "book", "day")


def reviews(count=30):
    pick = lambda words, i: words[i // 2 % len(words)]
    return [
        {
            "text": f"a {pick(GOOD if i % 2 else BAD, i)} {THINGS[i % 3]}",
            "label": ("bad", "good")[i % 2],
        }
        for i in range(count)
    ]


def table(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def wish(task, data, model="bert", **more):
    more.setdefault("options", SMALL | ({} if model == "t5" else {"length": 32}))
    return Tuning(model, task, data, **more)


def short(ready, **more):
    return usual(ready, **{"steps": 3, "batch": 4, **more})


# ------------------------------------------------------------------------ tasks


def test_a_classifier_learns_and_says_what_it_is(tmp_path):
    data = table(tmp_path / "r.csv", reviews())
    ready = prepare(wish("classification", data))
    done = tune(ready, tmp_path / "run", usual(ready, 20, batch=8, lr=1e-2))
    assert done.scores["validation"]["accuracy"] == 1.0
    task, model = opened(done.folder / "model")
    assert predict(task, model, [{"text": "a lovely book"}, {"text": "a awful day"}]) == [
        "good",
        "bad",
    ]
    card = (done.folder / "model" / "README.md").read_text()
    assert "| accuracy | 1 |" in card and "Labels: bad, good" in card


CASES = {
    "many-labels": ([{"text": "a b", "label": "x,y"}, {"text": "b", "label": "y"},
                     {"text": "c", "label": ""}] * 4, {"accuracy", "f1 micro", "f1 macro"}),
    "regression": ([{"text": "word " * n, "label": str(n / 2)} for n in range(1, 13)],
                   {"pearson", "spearman", "squared error"}),
    "token-classification": ([{"words": "Ann met Bob", "tags": "B-P O B-P"}] * 12,
                             {"f1", "accuracy"}),
    "multiple-choice": ([{"question": "who", "choices": ["you", "me"], "label": i % 2}
                         for i in range(12)], {"accuracy"}),
    "question-answering": ([{"question": "who", "context": "it was Ann", "answers":
                             [{"text": "Ann", "answer_start": 7}]}] * 12, {"exact", "f1"}),
    "summarisation": ([{"source": "a long text", "target": "text"}] * 12, {"rougeL"}),
    "translation": ([{"source": "a long text", "target": "text"}] * 12, {"bleu"}),
    "image-classification": ([{"image": [[i % 2 * 255] * 4] * 4, "label": i % 2}
                              for i in range(12)], {"accuracy"}),
}  # fmt: skip
MORE = {
    "question-answering": {"asks": {"stride": 2, "most": 4}},
    "summarisation": {"model": "t5", "asks": {"answer": 4, "context": 16}},
    "translation": {"model": "gpt2", "asks": {"answer": 4}},
    "image-classification": {
        "model": "vit",
        "options": SMALL | {"image": 4, "patch": 2, "embed.source.channels": 1},
    },
}


@pytest.mark.parametrize("task", CASES)
def test_every_task_trains_and_is_scored(task, tmp_path):
    rows, scores = CASES[task]
    data = lines(tmp_path / "r.jsonl", rows)
    ready = prepare(wish(task, data, **MORE.get(task, {})))
    done = tune(ready, tmp_path / "run", short(ready))
    assert scores <= {name.replace("exact match", "exact") for name in done.scores["validation"]}
    assert plan_in(done.folder / "model") == (task, ready.plan)


def test_captions_of_images(tmp_path):
    """An encoder of patches beside a decoder of tokens, from a folder of our own."""
    words = train_tokenizer("wordpiece", ["dark light"] * 9, 60, "bert")
    text = anyformer.recipe("bert2bert", **SMALL, vocab=len(words), length=12)
    sees = anyformer.recipe("vit", **SMALL, image=4, patch=2, **{"embed.source.channels": 1})
    spec = S.override(S.override(text, "encoder", S.override(sees, "head", None)), "start", 2)
    anyformer.build(S.check(spec)).save_pretrained(tmp_path / "both")
    words.save(tmp_path / "both")
    rows = [
        {"image": [[i % 2 * 255] * 4] * 4, "target": ("dark", "light")[i % 2]} for i in range(12)
    ]
    more = {"fields": {"target": "target"}, "asks": {"answer": 6}}
    ready = prepare(
        Tuning(str(tmp_path / "both"), "captioning", lines(tmp_path / "r.jsonl", rows), **more)
    )
    done = tune(ready, tmp_path / "run", short(ready))
    assert "bleu" in done.scores["validation"]


def test_fields_have_other_names(tmp_path):
    rows = [{"a": r["text"], "b": "more", "stars": r["label"]} for r in reviews()]
    found = {"text": "a", "pair": "b", "label": "stars"}
    ready = prepare(wish("classification", table(tmp_path / "r.csv", rows), fields=found))
    assert (ready.plan.text, ready.plan.pair, ready.plan.label) == ("a", "b", "stars")
    with pytest.raises(InputError, match="reads no field 'words'; it reads text, pair, label"):
        prepare(wish("classification", table(tmp_path / "r.csv", rows), fields={"words": "a"}))


def test_columns_of_words_and_tags(tmp_path):
    file = tmp_path / "a.conll"
    file.write_text("-DOCSTART- -X- O\n\nAnn NNP B-P\nran VBD O\n\n\nBob NNP B-P\n")
    assert read(str(file)) == [
        {"words": ["Ann", "ran"], "tags": ["B-P", "O"]},
        {"words": ["Bob"], "tags": ["B-P"]},
    ]
    file.write_text("Ann B-P\nran\n")
    with pytest.raises(AnyformerError, match=r"a.conll:2: 'ran' needs a word and its tag"):
        read(str(file))


def test_images_by_name_lie_beside_the_table(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 4), np.uint8))
    data = table(tmp_path / "r.csv", [{"image": "a.npy", "label": "x"}] * 2)
    assert RecordSource(what=data, files=("image",)).rows()[0][0]["image"] == str(
        tmp_path / "a.npy"
    )


def test_what_is_held_out_is_drawn_once(tmp_path):
    data = lines(tmp_path / "r.jsonl", [{"text": str(i)} for i in range(50)])
    learn, check = RecordSource(what=data).rows()
    assert len(learn) == 45 and len(check) == 5 and check[0]["text"] != "45"
    assert RecordSource(what=data).rows() == (learn, check)
    assert {r["text"] for r in (*learn, *check)} == set(map(str, range(50)))
    assert RecordSource(what=data, held_out=0.0).rows()[1] == []


# ----------------------------------------------------------------- runs that stop


def test_a_run_that_stopped_goes_on_to_the_same_scores(tmp_path, monkeypatch):
    import anyformer.train.loop as loops

    data = table(tmp_path / "r.csv", reviews())
    train_tokenizer("wordpiece", [r["text"] for r in reviews()], 80, "bert").save(
        tmp_path / "words"
    )
    ready = lambda: prepare(wish("classification", data, tokenizer=str(tmp_path / "words")))
    settings = lambda found: usual(found, steps=8, batch=8, lr=1e-2, log_every=1)
    found = ready()
    whole = tune(found, tmp_path / "whole", settings(found))
    inner, left = loops.Loop.save, [3]

    def stopped(self, *args, **options):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return inner(self, *args, **options)

    found = ready()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loops.Loop, "save", stopped)
        tune(found, tmp_path / "cut", settings(found))
    assert not (tmp_path / "cut" / "scores.json").exists()
    done = again(tmp_path / "cut")
    assert done.steps == 8 and done.scores == whole.scores
    same = lambda a, b: all(torch.equal(x, b[k]) for k, x in a.items())
    assert same(whole.model().state_dict(), done.model().state_dict())
    assert (tmp_path / "cut" / "model" / "task.json").is_file()


# ------------------------------------------------------------- folders of weights


@pytest.fixture
def folder(tmp_path):
    """A tiny BERT that transformers wrote, with a tokenizer."""
    words = train_tokenizer("wordpiece", [r["text"] for r in reviews()], 80, "bert")
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32, pad_token_id=0,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    words.save(tmp_path / "bert")
    return str(tmp_path / "bert")


def test_a_folder_comes_back_as_one(folder, tmp_path):
    data = table(tmp_path / "r.csv", reviews())
    done = finetune(folder, "classification", data, tmp_path / "run")
    home = done.folder / "model"
    config = json.loads((home / "config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good"}
    assert config["architectures"] == ["BertForSequenceClassification"]
    theirs = transformers.BertForSequenceClassification.from_pretrained(home).eval()
    assert theirs.config.id2label == {0: "bad", 1: "good"}
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    with torch.no_grad():
        assert torch.allclose(theirs(ids).logits, done.model()(ids).logits, atol=1e-6)
    assert labels_there(home, work_of("classification")) == ("bad", "good")


def test_labels_that_a_folder_has_not(folder, tmp_path):
    data = table(tmp_path / "r.csv", reviews())
    home = str(finetune(folder, "classification", data, tmp_path / "run").folder / "model")
    other = [{**r, "label": {"bad": "poor"}.get(r["label"], r["label"])} for r in reviews()]
    other = table(tmp_path / "other.csv", other)
    with pytest.raises(
        InputError, match=r"tells 'bad', 'good' apart, and the data has 'poor' too.*--new-head"
    ):
        prepare(Tuning(home, "classification", other))
    assert prepare(Tuning(home, "classification", other, new_head=True)).plan.labels == (
        "good",
        "poor",
    )
    numbers = table(
        tmp_path / "n.csv", [{**r, "label": int(r["label"] == "good")} for r in reviews()]
    )
    assert prepare(Tuning(home, "classification", numbers)).plan.labels == ("bad", "good")


@pytest.mark.parametrize(
    "task",
    ["many-labels", "regression", "token-classification", "question-answering", "multiple-choice"],
)
def test_every_head_of_a_folder(task, folder, tmp_path):
    data = lines(tmp_path / "r.jsonl", CASES[task][0])
    done = finetune(folder, task, data, tmp_path / "run", **MORE.get(task, {}))
    assert done.scores["validation"] and opened(done.folder / "model")
    config = json.loads((done.folder / "model" / "config.json").read_text())
    if task == "many-labels":
        assert config["problem_type"] == "multi_label_classification"


def test_a_pretrained_folder_of_our_own(tmp_path):
    words = train_tokenizer("wordpiece", [r["text"] for r in reviews()], 80, "bert")
    model = anyformer.build(anyformer.recipe("roberta", **SMALL, vocab=len(words), length=32))
    model.save_pretrained(tmp_path / "own")
    words.save(tmp_path / "own")
    data = table(tmp_path / "r.csv", reviews())
    ready = prepare(Tuning(str(tmp_path / "own"), "classification", data))
    kept = model.state_dict()
    assert isinstance(ready.model.spec.head, S.Classes)
    for key, value in ready.model.state_dict().items():
        if not key.startswith("head."):
            assert torch.equal(value, kept[key])


# ---------------------------------------------------------------------- bad input


def assert_refused(rows, match, tmp_path, task="classification", **more):
    with pytest.raises(AnyformerError, match=match):
        prepare(wish(task, lines(tmp_path / "r.jsonl", rows), **more))


def test_labels_outside_the_set(tmp_path):
    assert_refused(
        reviews(),
        "has the label 'good'; known labels: 'bad', 'fine'",
        tmp_path,
        labels=("bad", "fine"),
    )
    file = lines(tmp_path / "v.jsonl", [{"text": "so so", "label": "middling"}])
    assert_refused(reviews(), "'middling'; known labels: 'bad', 'good'", tmp_path, validation=file)
    assert_refused([{**r, "label": "bad"} for r in reviews()], "the data has 'bad' alone", tmp_path)
    assert_refused(
        [{**r, "label": "much"} for r in reviews()], "must be a number", tmp_path, "regression"
    )


def test_missing_fields_and_empty_files(tmp_path):
    assert_refused([{"text": "a"}] * 9, "has no 'label'; it has text", tmp_path)
    assert_refused([*reviews(), {"label": "bad"}], "has no 'text'", tmp_path)
    few = {"words": ["a", "b"], "tags": ["O"]}
    assert_refused([few] * 9, "as many tags", tmp_path, "token-classification", labels=("O", "B-x"))
    assert_refused(
        [{"question": "a", "choices": ["b"], "label": 0}] * 9,
        "2 or more",
        tmp_path,
        "multiple-choice",
    )
    assert_refused([], "no record", tmp_path)
    (tmp_path / "e.csv").write_text("")
    with pytest.raises(AnyformerError, match="no record"):
        prepare(wish("classification", str(tmp_path / "e.csv")))
    with pytest.raises(AnyformerError, match="is no file and no data set"):
        prepare(wish("classification", str(tmp_path / "gone.csv")))


def test_what_does_not_go_together(tmp_path):
    assert_refused(reviews(), "unknown task 'clasification'", tmp_path, "clasification")
    with pytest.raises(InputError, match="python-spans has no records for classification"):
        prepare(wish("classification", "python-spans"))
    with pytest.raises(InputError, match="leave --validation out"):
        prepare(wish("token-classification", "python-spans", validation="v.jsonl"))
    rows = [{"source": "a", "target": "b"}] * 9
    assert_refused(rows, "is for decoders, and this is an encoder", tmp_path, "summarisation")


def test_the_command_knows_the_same_tasks_and_fields():
    from anyformer.cli import finetune as command
    from anyformer.train.works import FIELDS

    assert command.TASKS == tuple(TASKS) and set(command.FIELDS) == set(FIELDS)
