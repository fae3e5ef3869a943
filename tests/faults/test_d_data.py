"""Group D: data that is empty, broken, not what it was, or too little."""

import gzip
import json
import logging
import os
import signal
import time

import pytest

from anyformer.data import crew
from anyformer.data.loader import Loader
from anyformer.data.prepare import prepare
from anyformer.data.samples import Records
from anyformer.data.shards import MANIFEST
from anyformer.data.sources import source
from anyformer.errors import AnyformerError, DataError, InputError, TrainError
from anyformer.train import resume, train
from anyformer.train.tune import Tuning
from anyformer.train.tune import prepare as prepared
from tests.faults.helping import assert_kept, assert_refused, words
from tests.objectives.test_answer import RECORDS, task_of
from tests.train.test_tune import lines, reviews, wish
from tests.train.tiny import Bound, Numbers, settings, spec

SMALL = ["gpt2", "dim=8", "depth=1", "heads=2", "--steps", "2", "--batch", "2", "--length", "8"]
TOLD = ["--tokenizer", "bytes", "--out", "run"]


@pytest.mark.parametrize(("content", "says"), [(b"", "is empty"), (b"\n \n", "no text")])
def test_d40_files_with_nothing(tmp_path, command, content, says):
    (tmp_path / "a.txt").write_bytes(content)
    command.assert_fails(["train", *SMALL, "--data", "a.txt", *TOLD], "a.txt", says)


def test_d40_one_line_without_end(tmp_path, monkeypatch):
    """Of a text any length, in pieces; of a record a stated one."""
    (tmp_path / "a.txt").write_bytes(b"word " * 1_000_000)
    pieces = list(source(tmp_path / "a.txt", split="line").pieces())
    assert max(len(piece.text) for piece in pieces) <= 1 << 19
    assert sum(len(piece.text) for piece in pieces) >= 4_999_999
    monkeypatch.setattr("anyformer.data.stream.LONGEST", 1 << 20)
    monkeypatch.setattr("anyformer.data.stream.lines.__defaults__", (1 << 20,))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a" * (1 << 21)}))
    with assert_refused("a.jsonl:1", "a line of more than", "split it", error=DataError):
        list(source(tmp_path / "a.jsonl").pieces())


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("latin.txt", b"caf\xe9 noir " * 9, "byte 3 is 0xe9"),
        ("wide.txt", "hello there".encode("utf-16"), "mark of utf-16"),
        ("binary.txt", b"\x7fELF\0\0\0" * 99, "NUL"),
        ("bomb.txt.gz", gzip.compress(b"a " * 2_000_000), "unpacks to more than 200 times"),
        ("cut.txt.gz", gzip.compress(b"hello " * 999)[:-9], "no whole gzip"),
        ("no.txt.gz", b"hello", "no whole gzip"),
    ],
    ids=["latin", "wide", "binary", "bomb", "cut", "no gzip"],
)
def test_d41_bytes_that_are_no_text(tmp_path, command, monkeypatch, name, content, says):
    monkeypatch.setattr("anyformer.data.stream.FREE", 1 << 20)
    (tmp_path / name).write_bytes(content)
    command.assert_fails(["train", *SMALL, "--data", name, *TOLD], name, says)


def test_d41_lines_that_end_otherwise(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    found = [piece.text for piece in source(tmp_path / "a.txt", split="line").pieces()]
    assert found == ["one", "two", "three"]


def test_d42_a_broken_line(tmp_path, writer, command):
    rows = [json.dumps({"text": f"text {i}"}) for i in range(9)]
    (tmp_path / "a.jsonl").write_text("\n".join([*rows[:4], '{"text": ', *rows[4:]]))
    told = ["data", "prepare", "a.jsonl", "--tokenizer", "writer", "--out", "shards"]
    command.assert_fails(told, "a.jsonl:5", "not valid JSON", "on_bad='skip'", seconds=20)
    code, _, err = command.ends([*told, "--on-bad", "skip", "--workers", "0"])
    assert code == 0, err
    about = json.loads((tmp_path / "shards" / MANIFEST).read_text())
    assert about["source"]["left_out"] == 1


@pytest.mark.parametrize("line", ["{", "7", "[1]"])
def test_d42_a_broken_line_in_fine_tuning(tmp_path, caplog, line):
    """What the message offers is there: in Python, and as an option of each verb that reads."""
    bad = lines(tmp_path / "b.jsonl", reviews(4)) and tmp_path / "b.jsonl"
    bad.write_text(bad.read_text() + f"{line}\n")
    with assert_kept(tmp_path), assert_refused("b.jsonl:5", "--on-bad skip", error=DataError):
        prepared(wish("classification", str(bad)))
    with caplog.at_level(logging.WARNING, "anyformer"):
        ready = prepared(wish("classification", str(bad), on_bad="skip"))
    assert len(ready.learn) + len(ready.check) == 4
    assert "b.jsonl: 1 bad records are left out" in caplog.text


def test_d42_a_broken_line_in_every_verb(tmp_path_factory, writer, command, monkeypatch, caplog):
    tmp_path = command.folder
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    rows = [json.dumps({"text": f"a text {i}", "label": "ab"[i % 2]}) for i in range(20)]
    (tmp_path / "a.jsonl").write_text("\n".join([*rows[:4], "[", *rows[4:]]))
    tune = ["finetune", "bert", "dim=8", "depth=1", "heads=2", "--task", "classification"]
    tune += ["--steps", "1", "--batch", "4", "--tokenizer", "wordpiece:60", "--out", "tuned"]
    told = {
        "train": ["train", *SMALL, *TOLD, "--data", "a.jsonl"],
        "finetune": [*tune, "--data", "a.jsonl"],
        "evaluate": ["evaluate", "writer", "--data", "a.jsonl", "--length", "8"],
        "evaluate a task": ["evaluate", "tuned/model", "--data", "a.jsonl"],
    }
    for name, verb in told.items():
        caplog.clear()
        command.assert_fails(verb, "a.jsonl:5", "--on-bad skip")
        code, out, err = command.ends([*verb, "--on-bad", "skip"])
        assert code == 0, (name, out, err)
        assert "a.jsonl: 1 bad records are left out" in caplog.text, name


def test_d43_a_missing_column(tmp_path, writer, command):
    (tmp_path / "a.jsonl").write_text('{"body": "x", "id": 1}\n')
    told = ["data", "prepare", "a.jsonl", "--tokenizer", "writer", "--out", "shards"]
    command.assert_fails(told, "no field 'text'", "'body', 'id'", "--field", seconds=20)
    rows = [{"body": r["text"], "label": r["label"]} for r in reviews()]
    file = lines(tmp_path / "b.jsonl", rows)
    with assert_kept(tmp_path), assert_refused("no 'text'", "body, label", error=AnyformerError):
        prepared(wish("classification", file))


def test_d44_labels(tmp_path):
    learn = lines(tmp_path / "a.jsonl", reviews())
    other = lines(tmp_path / "v.jsonl", [{"text": "so so", "label": "middling"}])
    with (
        assert_kept(tmp_path),
        assert_refused("'middling'", "known labels: 'bad', 'good'", remedy=False),
    ):
        prepared(wish("classification", learn, validation=other))
    one = lines(tmp_path / "o.jsonl", [{**r, "label": "bad"} for r in reviews()])
    with assert_kept(tmp_path), assert_refused("the data has 'bad' alone", "give two or more"):
        prepared(wish("classification", one))
    gaps = [{**r, "label": 7 if r["label"] == "bad" else 2} for r in reviews()]
    ready = prepared(wish("classification", lines(tmp_path / "g.jsonl", gaps)))
    assert [str(label) for label in ready.plan.labels] == ["2", "7"]
    assert ready.model.head.count == 2


def test_d45_answers_to_questions():
    task, _ = task_of()
    wrong = {**RECORDS[0], "id": "x", "answers": {"text": ["zebra"], "answer_start": [0]}}
    with assert_refused("record 'x'", "'zebra' doesn't stand at", error=InputError, remedy=False):
        task.place(wrong, task.windows(wrong)[0])
    cut = 0
    for record in RECORDS:  # an answer outside a window is none there, inside one it is whole
        for window in task.windows(record):
            start, end = task.place(record, window)
            assert start <= end
            cut += (start, end) == (window.none, window.none)
    assert cut > 0
    none = {**RECORDS[0], "answers": {"text": [], "answer_start": []}}
    window = task.windows(none)[0]
    assert task.place(none, window) == (window.none, window.none)


def test_d46_fewer_samples_than_a_batch(tmp_path):
    """A batch is filled from the next epoch: nothing is dropped, no rank waits."""
    run = train(spec(), Numbers(3), Bound(), tmp_path / "run", settings(steps=2, batch=8))
    assert run.steps == 2
    few = Records([{"n": i} for i in range(2)], seed=1)
    read = [len(Loader(few, _Maker(), batch=8, rank=r, world=4).step(0)[0]["n"]) for r in range(4)]
    assert read == [2, 2, 2, 2]


def test_d46_less_text_than_a_row(tmp_path, command):
    (tmp_path / "a.txt").write_text("hi")
    command.assert_fails(["train", *SMALL, "--data", "a.txt", *TOLD], "give a larger text")


class _Maker:
    def example(self, samples, index, rng):
        return {"n": samples[index]["n"]}

    def collate(self, examples):
        return {"n": [e["n"] for e in examples]}


def test_d47_records_in_both_parts(tmp_path, caplog):
    learn = reviews(20)
    check = [*learn[:3], {"text": "quite another", "label": "good"}]
    told = Tuning(
        "bert", "classification", lines(tmp_path / "a.jsonl", learn),
        validation=lines(tmp_path / "v.jsonl", check),
        options={"dim": 8, "depth": 1, "heads": 2, "length": 32},
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "anyformer"):
        prepared(told)
    assert "3 of 4 records to validate on are trained on too" in caplog.text


def test_d48_data_that_changed_since(tmp_path, command):
    (tmp_path / "a.txt").write_text("some words in a text. " * 60)
    code, _, err = command.ends(["train", *SMALL, "--data", "a.txt", *TOLD])
    assert code == 0, err
    (tmp_path / "a.txt").write_text("some other words, in a text. " * 60)
    with assert_kept(tmp_path / "run" / "checkpoints"):
        code, _, err = command.ends(["resume", "run"])
    assert code == 2
    assert "is not what the run began with" in err and "changed" in err
    assert command.ends(["resume", "run", "--changed-data"])[0] == 0


class Deadly(Bound):
    def example(self, samples, index, rng):
        if index == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().example(samples, index, rng)


def test_d49_a_worker_that_is_killed(tmp_path, monkeypatch):
    before = time.monotonic()
    with assert_refused("workers=1", "resume", error=TrainError, seconds=30):
        train(spec(), Numbers(), Deadly(), tmp_path / "a", settings(workers=1))
    assert resume(tmp_path / "a", Numbers(), Bound()).steps == 8
    monkeypatch.setattr(crew, "START", "import os; os.kill(os.getpid(), 9)")
    with assert_refused("worker 0", "died with status -9", error=DataError, seconds=30):
        prepare(["a b c"], words(), tmp_path / "s", workers=1)
    assert not (tmp_path / "s").exists()
    assert time.monotonic() - before < 30


def test_d50_any_number_of_workers_reads_the_same_order():
    rows = Records([{"n": i} for i in range(10)], seed=1)
    told = [
        [batch["n"] for step in Loader(rows, _Maker(), 4, seed=3, workers=n).steps(range(4))
         for batch in step]
        for n in (0, 1, 2)
    ]  # fmt: skip
    assert told[0] == told[1] == told[2]
