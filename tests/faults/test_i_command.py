"""Group I: the command's words and folders, and what reports make of hostile or odd content."""

import csv
import dataclasses
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anyformer
from anyformer.study.report.curves import curve
from anyformer.study.report.files import _csv
from anyformer.study.results import Point
from anyformer.study.stats import judge
from anyformer.train import log, train
from anyformer.train.card import card
from tests.faults.helping import assert_refused, made, words
from tests.study.fake import table
from tests.study.test_report import _Reader
from tests.train.test_card import EVIL as CARD
from tests.train.test_card import _card
from tests.train.tiny import Numbers, TinyCausal, settings, spec

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "</script><script>alert(1)</script>",
)
OUTSIDE = re.compile(r"""(?:src|href|url\()\s*=?\s*["']?\s*(?:https?:|//|javascript:)""", re.I)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["shwo", "gpt2"], "did you mean 'show'?"),
        (["show", "gtp2"], "did you mean 'gpt2'?"),
        (["show", "gpt2", "--lenght", "3"], "did you mean --length?"),
        (["show", "gpt2", "--length", "three"], "invalid int value: 'three'"),
        (["train", "gpt2", "--precision", "float61"], "did you mean float16?"),
        (["train", "gpt2", "--objective", "causl", "--out", "r"], "did you mean 'causal'?"),
        (["train", "gpt2", "--set", "optimiser=Adamw", "--out", "r"], "optimiser"),
        (["finetune", "bert", "--task", "clasification", "--data", "x"], "mean classification?"),
        (["predict", "clasify", "m", "x"], "did you mean 'classify'?"),
        (["data", "lst"], "did you mean list?"),
        (["complete", "\x1b[31mfish"], "invalid choice"),
    ],
)
def test_i85_words_that_are_not_known(command, words, says):
    command.assert_fails(words, says)


def test_i86_folders_that_are_not_empty(theirs, tmp_path, command):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    (tmp_path / "a.txt").write_text("some words in a text. " * 60)
    command.assert_fails(["convert", theirs, "out"], "is not empty", "--force")
    size = ["dim=8", "depth=1", "heads=2", "--tokenizer", "bytes", "--steps", "1"]
    told = ["train", "gpt2", *size, "--data", "a.txt", "--length", "8", "--batch", "2"]
    command.assert_fails(
        [*told, "--out", "out"], "is not empty", "thesis.txt", "give another folder"
    )
    prepared = ["data", "prepare", "a.txt", "--tokenizer", "words", "--out", "shards"]
    words().save(tmp_path / "words")
    assert command.ends([*prepared, "--workers", "0"])[0] == 0
    command.assert_fails([*prepared, "--workers", "0"], "shards", "overwrite")
    made_ = ["tokenizer", "train", "bytes", "--out", "words"]
    command.assert_fails(made_, "has a tokenizer already", "choose another folder")
    assert command.ends([*told, "--out", "run"])[0] == 0
    command.assert_fails([*told, "--out", "run"], "holds a run", "resume it")


@pytest.fixture(scope="module")
def page():
    """One report of variants with hostile names and numbers that are none."""
    from anyformer.study.report import page

    values = [[1.0, math.nan], [1.2, math.inf], [1.1, None], [1.3, 1.4]]
    return page(table({name: {0.1: v} for name, v in zip(HOSTILE, values, strict=True)}))


def test_i87_markup_in_a_report(page):
    read = _Reader(page)
    assert read.tags.count("script") == 1 and "img" not in read.tags
    assert not any(name.startswith("on") for name in read.attributes)
    assert not any(href.lower().startswith("javascript") for href in read.hrefs)
    assert not any(name in page for name in HOSTILE if "<" in name or ">" in name)
    assert "alert(1)" in "".join(read.text)


def test_i87_markup_on_a_page_of_attention(tmp_path):
    home = tmp_path / "m"
    made(vocab=len(words()), length=64).save_pretrained(home, "anyformer")
    words().save(home)
    for name in HOSTILE:
        text = anyformer.attend(home, name).html()
        assert text.count("<script") == 2 and text.count("</script>") == 2
        assert "<img" not in text
        assert "default-src 'none'" in text
        assert not OUTSIDE.search(text)


def test_i87_markup_in_a_card(tmp_path):
    text = _card(CARD)
    assert "<script>" not in text and "[a](javascript" not in text
    front = text.split("---\n")[1]
    assert {line.split(":")[0] for line in front.splitlines()} == {"library_name", "tags"}
    assert card  # the same that every run writes


def test_i87_formulas_in_tables(tmp_path):
    _csv(tmp_path / "a.csv", ["variant"], [["=cmd()"], ["+1"], ["-1"], ["@sum"]])
    with (tmp_path / "a.csv").open(newline="") as file:
        assert not any(row["variant"][0] in "=+-@" for row in csv.DictReader(file))


def test_i87_escapes_in_a_terminal(tmp_path, theirs, command):
    odd = tmp_path / "\x1b[31mred\x07\u202e"
    odd.mkdir()
    err = command.assert_fails(["convert", odd, "out"], "\\x1b[31mred\\x07\\u202e")
    assert err.strip().isprintable()


def test_i88_a_report_needs_nothing_else(page):
    assert not OUTSIDE.search(page)
    assert "Content-Security-Policy" in page


def test_i89_numbers_that_are_none(page):
    assert "Verdicts" in _Reader(page).text
    for value, told in ((math.nan, "nan"), (math.inf, "inf"), (None, None)):
        assert json.loads(log.line({"step": 1, "loss": value}))["loss"] == told


def with_points(count):
    results = table({"a": {0.1: [1.0]}, "b": {0.1: [2.0]}})
    points = tuple(
        Point(i, i * 8, i * 100.0, i * 0.1, {"loss": 2.0 + 1.0 / (1 + i)}) for i in range(count)
    )
    outcomes = tuple(dataclasses.replace(o, points=points) for o in results.outcomes)
    return dataclasses.replace(results, outcomes=outcomes)


@pytest.mark.parametrize("count", [0, 1])
def test_i89_no_point_and_one_point(count):
    results = with_points(count)
    drawn = curve(results, judge(results), "a", "loss", "tokens")
    assert drawn is None if count == 0 else len(drawn.x) == 1


def test_i89_very_many_points():
    results = with_points(20_000)
    assert len(curve(results, judge(results), "a", "loss", "tokens").x) <= 2_000


def test_i90_lines_of_a_log_that_are_broken(tmp_path):
    train(spec(), Numbers(), TinyCausal(), tmp_path / "a", settings(steps=3))
    whole = log.read(tmp_path / "a")
    file = tmp_path / "a" / log.METRICS
    file.write_bytes(file.read_bytes() + b'{"step": 4, "lo\n\xff\xfe\n')
    assert log.read(tmp_path / "a") == whole
    file.unlink()
    assert log.read(tmp_path / "a") == []


def ran(words, **around):
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **around}
    return subprocess.run(
        [sys.executable, "-m", "anyformer", *words], env=given, capture_output=True, timeout=60
    )


def test_i91_terminals_of_every_kind(command, monkeypatch):
    plain = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "NO_COLOR": "1", "COLUMNS": "20"}
    done = ran(["show", "gpt2", "--flat"], **plain)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and b"\x1b" not in done.stdout
    done = ran(["show", "gpt2", "größe=3"], **plain)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr and b"unknown" in done.stderr
    monkeypatch.setenv("COLUMNS", "20")
    code, out, _ = command.ends(["list"])
    assert code == 0 and "\x1b" not in out
    with assert_refused(repr("C:\\models\\bert")):
        anyformer.load("C:\\models\\bert")


def test_i92_secrets_stay_out(tmp_path, command, monkeypatch):
    secret = "hf_SECRETsecretSECRET"
    for name in ("HF_TOKEN", "WANDB_API_KEY", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, secret)
    (tmp_path / "a.txt").write_text("some words in a text. " * 60)
    size = ["dim=8", "depth=1", "heads=2", "--tokenizer", "bytes", "--steps", "1"]
    told = ["train", "gpt2", *size, "--data", "a.txt", "--length", "8", "--batch", "2"]
    code, out, err = command.ends([*told, "--out", "run"])
    assert code == 0, err
    assert secret not in out + err
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
