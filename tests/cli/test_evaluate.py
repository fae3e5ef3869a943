"""`anyformer evaluate`: the scores of a task, and those of a language model."""

import json
import math

import pytest
import torch

import anyformer
from anyformer.cli.main import main
from anyformer.data.train_tokenizer import train as train_tokenizer
from anyformer.objectives.registry import default_for, fit
from tests.cli.test_finetune import FIELDS, TINY, reviews

TEXT = "The cat sat on the mat, and the dog ran; été. " * 40


def numbers(said):
    """The numbers of a printed table by their names."""
    rows = [line.rsplit(None, 1) for line in said.splitlines()[1:]]
    return {name.strip(): float(value) for name, value in rows}


def test_the_same_scores_as_fine_tuning(tmp_path, capsys):
    data, out = reviews(tmp_path / "r.csv"), tmp_path / "run"
    held = reviews(tmp_path / "v.csv", 12)
    words = ["finetune", "bert", *TINY, "--task", "classification", "--data", data, *FIELDS]
    assert main([*words, "--validation", held, "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(out / "model"), "--data", held]) == 0
    said = numbers(capsys.readouterr().out)
    scores = json.loads((out / "scores.json").read_text())["validation"]
    assert said == {name: pytest.approx(value, abs=1e-4) for name, value in scores.items()}
    again = ["evaluate", str(out / "model"), "--task", "classification", "--data", held, *FIELDS]
    assert main(again) == 0 and numbers(capsys.readouterr().out) == said


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    return str(tmp_path / "a.txt")


def folder(tmp_path, name, kind, style):
    words = train_tokenizer(kind, [TEXT], 300, style)
    spec = anyformer.recipe(name, dim=16, depth=1, heads=2, vocab=len(words), length=16)
    spec = fit(default_for(name), spec)
    torch.manual_seed(0)
    anyformer.build(spec).save_pretrained(tmp_path / name)
    words.save(tmp_path / name)
    return str(tmp_path / name), words


def test_a_decoder_on_texts(text, tmp_path, capsys):
    home, words = folder(tmp_path, "gpt2", "bpe", "gpt")
    assert main(["evaluate", home, "--data", text]) == 0
    said = numbers(capsys.readouterr().out)
    tokens = len(words.encode(TEXT)) + 1  # and the end of the text
    bits = said["loss"] * tokens / len(TEXT.encode()) / math.log(2)
    assert said["perplexity"] == pytest.approx(math.exp(said["loss"]), rel=1e-3)
    assert said["bits per byte"] == pytest.approx(bits, rel=1e-3)
    share = len(TEXT.encode()) / len(TEXT)
    assert said["bits per character"] == pytest.approx(bits * share, rel=1e-3)
    assert said["loss"] < math.log(len(words)) + 0.5


def test_an_encoder_on_texts(text, tmp_path, capsys):
    home, _ = folder(tmp_path, "roberta", "wordpiece", "bert")
    assert main(["evaluate", home, "--data", text, "--rows", "4"]) == 0
    said = numbers(capsys.readouterr().out)
    assert {"loss", "pseudo perplexity", "pseudo bits per byte"} <= said.keys()


def test_what_cannot_be_evaluated(text, tmp_path, capsys):
    home, _ = folder(tmp_path, "roberta", "wordpiece", "bert")
    data = reviews(tmp_path / "r.csv")
    assert main(["evaluate", home, "--task", "classification", "--data", data, *FIELDS]) == 2
    assert "has no head for classification: fine-tune it first" in capsys.readouterr().err
    assert main(["evaluate", home, "--data", text, "--label", "stars"]) == 2
    assert "name the task" in capsys.readouterr().err
