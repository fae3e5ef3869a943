"""`anyformer laws`."""

import datetime
import json
import re

import pytest

from anyformer import build, recipe
from anyformer import spec as S
from anyformer.cli.laws import seed_of
from anyformer.cli.main import main
from tests.laws.test_mutations import sees_the_next

SMALL = {"dim": 8, "depth": 1, "heads": 2, "vocab": 29, "length": 40}


@pytest.mark.parametrize("word", ["gpt2+rotary", "spec", "folder"])
def test_models_of_every_kind_are_tried(word, tmp_path, capsys):
    spec = recipe("gpt2", **SMALL)
    if word == "spec":
        word = str(tmp_path / "mine.json")
        (tmp_path / "mine.json").write_text(S.to_json(spec))
    elif word == "folder":
        word = str(tmp_path / "model")
        build(spec).save_pretrained(word)
    assert main(["laws", word, "stack.depth=3", "--law", "1 causal"]) == 0
    out = capsys.readouterr().out
    assert f"1 laws speak of {word}: none broken" in out
    assert ("made smaller" in out) and "depth 3 → 2" in out


def test_what_is_broken_is_printed_kept_and_ends_with_1(tmp_path, monkeypatch, capsys):
    sees_the_next(monkeypatch)
    words = ["gpt2", "stack.block.0.branch.backend=eager", "--law", "1 causal"]
    assert main(["laws", *words, "--keep", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "law 1 causal is broken" in out and "1 laws speak of gpt2: 1 broken" in out
    (kept,) = tmp_path.iterdir()
    assert json.loads(kept.read_text())["law"] == "1 causal"


def test_random_specs(capsys):
    assert main(["laws", "--random", "3", "--seed", "7", "--law", "9 parameters"]) == 0
    out = capsys.readouterr().out
    assert "3 specs from seed 7 on" in out and "9 parameters" in out.splitlines()[-3]
    assert re.search(r"^3 specs \(1 drawn, \d crossed, .*\), 3 tries of 1 laws$", out, re.M)


def test_the_seed_of_a_day_is_its_own():
    assert seed_of("today") == datetime.date.today().toordinal() * 100_000
    assert seed_of("12") == 12


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a model"),
        (["gpt2", "--random", "3"], "name a model"),
        (["--random", "0"], "at least 1"),
        (["gpt2", "--seed", "x"], "whole number or today"),
        (["gpt2", "--law", "1 cusal"], "did you mean '1 causal'"),
        (["gpt2+rotry"], "did you mean 'rotary'"),
    ],
)
def test_bad_words_are_refused(words, said, capsys):
    assert main(["laws", *words]) == 2
    assert said in capsys.readouterr().err
