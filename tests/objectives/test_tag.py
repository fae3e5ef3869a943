"""Tags of words: alignment to pieces, long sentences in parts, scores of spans."""

import numpy as np
import pytest

from anyformer import recipe
from anyformer.errors import InputError
from anyformer.objectives.base import IGNORED
from anyformer.objectives.tag import TokenClassification, aligned, firsts
from anyformer.objectives.task import evaluate, predict
from tests.objectives import samples as T
from tests.objectives.stepping import batch_of, check_step, finetuned, trainee_of

LABELS = ("O", "B-X", "I-X")
PLAN = TokenClassification(labels=LABELS)
WORDS = [
    "The value of Ünïcode identifiers , naïve-ly".split(),
    ["compound", "statements", "日本語", "😀", "x=1"],
    ["Return", "a", "string"],
]
RECORDS = T.Records(
    [{"words": w, "tags": [LABELS[(i + 1) % 3] for i in range(len(w))]} for w in WORDS]
)
KINDS = {"bert": "bert", "roberta": "roberta", "gpt2": "gpt2", "albert": "albert"}


def task_of(name, plan=PLAN, length=48):
    tok = T.tokenizer(name)
    sizes = {"dim": 16, "depth": 1, "heads": 2, "dropout": 0.0, "length": length}
    extra = {"width": 8} if name == "albert" else {}
    spec = plan.fit(recipe(KINDS[name], vocab=len(tok), **sizes, **extra))
    return plan.bind(tok, spec), spec


@pytest.mark.parametrize("name", KINDS)
def test_each_word_has_one_label_at_its_first_piece(name):
    task, _ = task_of(name)
    for i, record in enumerate(RECORDS):
        found = task.example(RECORDS, i, T.rng())
        labels = found["labels"]
        assert len(labels) == len(found["input_ids"])
        got = [LABELS[id] for id in labels[labels != IGNORED]]
        assert got == record["tags"]
        for place, word in zip(np.flatnonzero(labels != IGNORED), record["words"], strict=True):
            piece = task.reader.tokenizer.token(int(found["input_ids"][place]))
            assert not piece.startswith("##"), (word, piece)


def test_all_pieces_may_have_the_label():
    task, _ = task_of("bert", TokenClassification(labels=LABELS, pieces="all"))
    labels = task.example(RECORDS, 0, T.rng())["labels"]
    assert (labels[1:-1] != IGNORED).all() and labels[0] == labels[-1] == IGNORED


def test_alignment_by_hand():
    owner = aligned(
        ["ab", "c"], [(0, 0), (0, 1), (1, 2), (2, 3), (2, 4), (0, 0)], [1, 0, 0, 0, 0, 1]
    )
    assert owner.tolist() == [-1, 0, 0, -1, 1, -1]
    assert firsts(owner).tolist() == [False, True, False, False, True, False]


def test_long_sentences_are_read_in_parts_that_hold_each_word_once():
    task, spec = task_of("bert", length=12)
    words = [w for some in WORDS for w in some] * 4
    record = {"words": words, "tags": ["O"] * len(words)}
    parts = task.parts(record)
    assert [i for part in parts for i in part] == list(range(len(words)))
    rows = task.features(record)
    assert len(rows) == len(parts) > 3 and max(len(r["input_ids"]) for r in rows) <= 12
    spread = task.spread([record])
    assert [w for r in spread for w in r["words"]] == words
    model = trainee_of(task, spec).model
    assert len(predict(task, model, [record])[0]) == len(words)
    assert len(task.example(T.Records([record]), 0, T.rng())["input_ids"]) <= 12


def test_a_model_learns_tags_and_they_are_scored_as_spans():
    task, spec = task_of("bert")
    check_step(trainee_of(task, spec), batch_of(task, RECORDS))
    model = finetuned(task, spec, RECORDS, steps=80)
    scores = evaluate(task, model, RECORDS)
    assert scores["accuracy"] > 0.6 and {"precision", "recall", "f1", "f1 X"} <= set(scores)
    plain, spec = task_of("bert", TokenClassification(labels=("N", "V")))
    records = [{"words": ["a", "b"], "tags": ["N", "V"]}]
    assert plain.score([["N", "N"]], records) == {"accuracy": 0.5, "f1 macro": pytest.approx(1 / 3)}


def test_words_without_tokens_are_outside():
    task, spec = task_of("bert")
    record = {"words": ["a", "\u200b\x07", "b"], "tags": ["O", "O", "B-X"]}
    assert (task.example(T.Records([record]), 0, T.rng())["labels"] != IGNORED).sum() == 2
    assert predict(task, trainee_of(task, spec).model, [record])[0][1] == "O"


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"words": ["a"], "tags": ["B-Y"]}, "label 'B-Y'; known labels: 'O', 'B-X', 'I-X'"),
        ({"words": ["a", "b"], "tags": ["O"]}, "has 2 words: it needs as many tags"),
        ({"words": "a b", "tags": ["O"]}, "must be a list of words"),
    ],
)
def test_bad_records_are_named(record, told):
    with pytest.raises(InputError, match=told):
        task_of("bert")[0].example(T.Records([record]), 0, T.rng())


def test_a_tokenizer_that_rewrites_words_is_refused():
    tok = T.tokenizer("xlm")
    sizes = {"dim": 16, "depth": 1, "heads": 2, "length": 48, "dropout": 0.0, "vocab": len(tok)}
    spec = PLAN.fit(recipe("bert", **sizes))
    with pytest.raises(InputError, match="no offsets"):
        PLAN.bind(tok, spec).features(RECORDS[0])
