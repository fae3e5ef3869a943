"""Question answering: windows over long contexts, places of answers, the best span, SQuAD files."""

import json
from itertools import pairwise

import numpy as np
import pytest

from anyformer import recipe
from anyformer.errors import InputError
from anyformer.objectives.answer import QuestionAnswering, answers_of, best_span, read_squad
from anyformer.objectives.task import evaluate, predict
from tests.objectives import samples as T
from tests.objectives.stepping import batch_of, check_step, finetuned, trainee_of

CONTEXT = (
    "The Python interpreter evaluates expressions. A compound statement, such as if or while, "
    "contains other statements; naïve café identifiers are fine. An object has a type and a value, "
    "and an integer is such an object. Modules are imported with the import statement."
)


def record(question, answer=None, **more):
    answers = {"text": [], "answer_start": []}
    if answer is not None:
        answers = {"text": [answer], "answer_start": [CONTEXT.index(answer)]}
    return {"question": question, "context": CONTEXT, "answers": answers, **more}


RECORDS = T.Records(
    [
        record("What is evaluated?", "expressions"),
        record("What is fine?", "naïve café identifiers"),
        record("How are modules imported?", "with the import statement"),
        record("Who wrote this?", None, is_impossible=True),
    ]
)
KINDS = {"bert": "bert", "roberta": "roberta", "gpt2": "gpt2", "t5": "t5"}
SIZES = {"dim": 16, "depth": 1, "heads": 2, "dropout": 0.0}


def task_of(name="bert", **options):
    plan = QuestionAnswering(**{"stride": 8, "length": 48, "impossible": True, **options})
    tok = T.tokenizer(name)
    extra = {} if name == "t5" else {"length": 400}
    spec = plan.fit(recipe(KINDS[name], vocab=len(tok), **extra, **SIZES))
    return plan.bind(tok, spec), spec


@pytest.mark.parametrize("name", KINDS)
def test_windows_cover_every_token_and_overlap_by_the_stride(name):
    task, _ = task_of(name)
    whole = task_of(name, length=400)[0].windows(RECORDS[0])
    assert len(whole) == 1
    windows = task.windows(RECORDS[0])
    assert len(windows) > 2
    assert all(len(w.row["input_ids"]) <= 48 for w in windows)
    inside = [w.row["input_ids"][w.first : w.first + len(w.letters)] for w in windows]
    for left, right in pairwise(inside):
        assert left[-8:].tolist() == right[:8].tolist()
    joined = np.concatenate([inside[0], *(part[8:] for part in inside[1:])])
    full = whole[0].row["input_ids"][whole[0].first : whole[0].first + len(whole[0].letters)]
    assert joined.tolist() == full.tolist()
    for window in windows:
        tail = len(window.row["input_ids"]) - window.first - len(window.letters)
        assert (
            window.row["input_ids"][: window.first].tolist()
            == whole[0].row["input_ids"][: whole[0].first].tolist()
        )
        assert tail == len(whole[0].row["input_ids"]) - whole[0].first - len(whole[0].letters)


@pytest.mark.parametrize("name", KINDS)
def test_places_are_those_of_the_answer_and_somewhere_it_is_whole(name):
    task, _ = task_of(name)
    for one in RECORDS:
        found = 0
        for window in task.windows(one):
            start, end = task.place(one, window)
            if start == window.none and end == window.none:
                continue
            found += 1
            letters = window.letters
            text = CONTEXT[letters[start - window.first, 0] : letters[end - window.first, 1]]
            assert text == one["answers"]["text"][0]
        assert bool(found) == bool(one["answers"]["text"])


def test_right_logits_give_the_answers_back():
    task, _ = task_of()
    answers = []
    for one in RECORDS:
        rows = []
        for window in task.windows(one):
            start, end = task.place(one, window)
            logits = np.zeros((2, len(window.row["input_ids"])))
            logits[0, start] = logits[1, end] = 5.0
            if not one["answers"]["text"]:
                logits *= 2
            rows.append({"start_logits": logits[0], "end_logits": logits[1]})
        answers.append(rows)
    found = task.decode(answers, RECORDS)
    wanted = [one["answers"]["text"][0] if one["answers"]["text"] else "" for one in RECORDS]
    assert [p["text"] for p in found] == wanted
    scores = task.score(found, RECORDS)
    assert scores["exact"] == scores["f1"] == scores["best f1"] == 100.0


def test_the_best_span_ends_behind_its_start_and_is_not_too_long():
    plan = QuestionAnswering(longest=2, best=4)
    start, end = np.array([0.0, 3.0, 0.0, 1.0]), np.array([5.0, 0.0, 1.0, 3.5])
    assert best_span(start, end, plan) == (5.0, 0, 0)
    assert best_span(start, end, QuestionAnswering(longest=3, best=4)) == (6.5, 1, 3)
    assert best_span(start, end, QuestionAnswering(best=1)) == (5.0, 0, 0)


def test_records_are_spread_over_windows_or_one_is_drawn():
    task, _ = task_of()
    spread = task.spread(RECORDS[i] for i in range(4))
    count = len(task.windows(RECORDS[0]))
    assert [r["window"] for r in spread][:count] == list(range(count))
    drawn = {tuple(task.example(RECORDS, 0, T.rng(0, i))["input_ids"]) for i in range(20)}
    assert len(drawn) == count


def test_a_model_learns_where_answers_are():
    task, spec = task_of(length=200, stride=16)
    check_step(trainee_of(task, spec), batch_of(task, RECORDS, 4))
    model = finetuned(task, spec, RECORDS, steps=60)
    assert evaluate(task, model, RECORDS)["f1"] > 40
    strict, _ = task_of(impossible=False)
    assert all(p["text"] for p in predict(strict, model, [RECORDS[3]]))
    with pytest.raises(InputError, match="set impossible=True"):
        strict.score([{"text": ""}], [RECORDS[3]])


def test_long_questions_are_cut():
    task, _ = task_of(most=5)
    window = task.windows(record("why " * 30, "expressions"))[0]
    assert window.first == 1 + 5 + 1


def test_squad_files(tmp_path):
    asked = {"id": "q1", "question": "What?", "answers": [{"text": "A", "answer_start": 3}]}
    none = {"id": "q2", "question": "Who?", "answers": [], "is_impossible": True}
    data = {"data": [{"title": "t", "paragraphs": [{"context": "Is A.", "qas": [asked, none]}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(data))
    first, second = read_squad(tmp_path / "dev.json")
    assert answers_of(first) == [("A", 3)] and answers_of(second) == []
    assert (first["id"], first["context"], first["title"]) == ("q1", "Is A.", "t")
    (tmp_path / "bad.json").write_text('{"data": [{"paragraphs": [{}]}]}')
    with pytest.raises(InputError, match="is no SQuAD file"):
        read_squad(tmp_path / "bad.json")


def test_bad_records_are_named():
    task, _ = task_of()
    wrong = {**RECORDS[0], "id": "x", "answers": {"text": ["expressions"], "answer_start": [0]}}
    with pytest.raises(InputError, match="record 'x': the answer 'expressions' doesn't stand at"):
        task.example(T.Records([wrong]), 0, T.rng())
    with pytest.raises(InputError, match="its context has no tokens"):
        task.windows({"question": "what", "context": " "})
    with pytest.raises(InputError, match="must hold texts and answer_start"):
        answers_of({"answers": [{"start": 1}]})
    with pytest.raises(InputError, match="take a greater length"):
        task_of(length=12)[0].windows(RECORDS[0])
