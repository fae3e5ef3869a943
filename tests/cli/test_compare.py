"""`anyformer compare`, `report`, `watch` and `study` on one small study."""

import json
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from anyformer.cli import studying
from anyformer.cli.compare import arguments, first, study_of
from anyformer.cli.main import main
from anyformer.study.nodes import FlopBudget, StepBudget, TimeBudget, TokenBudget
from tests.study import tiny

pytest.importorskip("matplotlib", reason="reports need matplotlib")
ROOT = Path(__file__).resolve().parents[2]
SIZE = ["--options", "dim=16", "depth=1", "heads=2", "dropout=0.0"]
QUICK = ["--tokenizer", "characters", "--length", "16", "--batch", "4", "--seeds", "2", "--no-open"]
QUICK += ["--jobs", "1"]  # one process to start


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A command over a text of its own, without its variants."""
    file = tiny.text(tmp_path_factory.mktemp("data"))
    return ["--data", str(file), "--budget", "12steps", *SIZE, *QUICK]


@pytest.fixture(scope="module")
def done(words, tmp_path_factory):
    """A study that the command has ended, and what the command gave and said."""
    home = tmp_path_factory.mktemp("studies") / "s"
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = main(["compare", "gpt2", "gpt2+rotary", *words, "--out", str(home)])
    return home, (status, out.getvalue(), err.getvalue())


def test_a_comparison_ends_with_verdicts_and_a_report(done):
    home, (status, out, err) = done
    assert status == 0, err
    assert {"report.html", "results.json", "verdicts.csv", "figures"} <= set(os.listdir(home))
    assert out.startswith("gpt2+rotary: ") and f"report: {home / 'report.html'}" in out
    assert "[4/4]" in err


@pytest.mark.slow  # tests/study/test_run.py: what is done is not done again
def test_the_same_command_ends_at_once(done, words, capsys):
    assert main(["compare", "gpt2", "gpt2+rotary", *words, "--out", str(done[0])]) == 0
    assert "[4/4]" in capsys.readouterr().err


def test_a_report_of_what_is_there(done, tmp_path, capsys):
    home, _ = done
    assert main(["report", str(home), "--out", str(tmp_path / "r"), "--no-open"]) == 0
    assert (tmp_path / "r" / "report.html").is_file()
    found = json.loads((tmp_path / "r" / "results.json").read_text())
    assert len(found["outcomes"]) == 4


def test_a_study_that_is_over_is_watched_to_its_end(done, capsys):
    assert main(["watch", str(done[0])]) == 0
    assert capsys.readouterr().err.count("done loss") == 4


@pytest.mark.parametrize("verb", ["report", "watch"])
def test_a_folder_that_is_no_study(verb, tmp_path, capsys):
    assert main([verb, str(tmp_path)]) == 2
    assert "is no study: it has no study.json" in capsys.readouterr().err


def test_a_port_that_cant_be(done, capsys):
    assert main(["watch", str(done[0]), "--serve", "70000", "--no-open"]) == 2
    assert "port 70000 can't be had" in capsys.readouterr().err


def test_a_served_study_ends_cleanly(done):
    process = subprocess.Popen(
        [sys.executable, "-m", "anyformer", "watch", str(done[0]), "--serve", "0", "--no-open"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert "http://127.0.0.1:" in process.stderr.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        told = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 0 and "Traceback" not in told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["gpt2", "gpt2"], "two variants are called 'gpt2': leave one out"),
        (["gpt2", "gpt2+dim=16"], "are the same model"),
        (["gpt2", "gpt2+rotry"], "did you mean 'rotary'"),
        (["gpt2", "gtp2"], "did you mean 'gpt2'"),
        (["gpt2", "+rotary"], "names no recipe"),
        (["gpt2"], "at least two variants"),
        (["gpt2", "bert"], "name one objective for all"),
        (["gpt2", "gpt2+rotary", "--budget", "1steps"], "the budget allows 1 steps"),
        (["gpt2", "gpt2+rotary", "--budget", "10x"], "write minutes as 10m"),
        (["gpt2", "gpt2+rotary", "--seeds", "0"], "at least one"),
        (["gpt2", "gpt2+rotary", "--jobs", "0"], "0 jobs"),
        (["gpt2", "gpt2+rotary", "--data", "gone.txt"], "gone.txt is not there"),
        (["gpt2", "gpt2+rotary", "--set", "foo=3"], "unknown field of Settings"),
        (["gpt2", "gpt2+stack.depth=40", "--match", "parameters"], "no feedforward gives"),
    ],
)
def test_what_cant_be_is_one_line_and_leaves_nothing(words, tmp_path, more, told, capsys):
    home = tmp_path / "s"
    assert main(["compare", *words, *more, "--out", str(home)]) == 2
    caught = capsys.readouterr()
    assert told in caught.err and "Traceback" not in caught.err
    assert caught.err.splitlines()[-1].startswith("anyformer: ")
    assert not home.exists()


def test_a_folder_of_another_study(done, words, capsys):
    assert main(["compare", "gpt2", "gpt2+glu", *words, "--out", str(done[0])]) == 2
    assert "holds another study" in capsys.readouterr().err


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_study_in_order(which, words, tmp_path, monkeypatch, capsys):
    def run(*_):
        os.kill(os.getpid(), which)
        time.sleep(5)

    monkeypatch.setattr("anyformer.study.run.run", run)
    before = signal.getsignal(which)
    assert main(["compare", "gpt2", "gpt2+glu", *words, "--out", str(tmp_path)]) == 128 + which
    assert "the same command goes on" in capsys.readouterr().err
    assert signal.getsignal(which) is before


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("10m", TimeBudget(minutes=10.0)),
        ("1.5h", TimeBudget(minutes=90.0)),
        ("30s", TimeBudget(minutes=0.5)),
        ("600steps", StepBudget(steps=600)),
        ("2ksteps", StepBudget(steps=2000)),
        ("5Mtokens", TokenBudget(tokens=5e6)),
        ("1e15flops", FlopBudget(flops=1e15)),
    ],
)
def test_budgets_as_they_are_written(text, budget):
    assert studying.budget(text) == budget


def test_no_arguments_are_a_small_study():
    parser = ArgumentParser()
    arguments(parser)
    study = first(parser.parse_args([]))
    assert len(study.variants) == 5 and len(study.seeds) == 3
    assert study_of(parser.parse_args(["--budget", "9steps"])).budget == StepBudget(steps=9)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "a.txt", "--seeds", "5"], "--data, --seeds: name the variants"),
        (["gpt2", "gpt2+rotary", "--full", "--options", "dim=8"], "leave out --options"),
        (["gpt2", "gpt2+rotary", "--by", "width"], "give --match too"),
        (["gpt2", "gpt2+rotary", "--lr", "0"], "lr"),
        (["gpt2", "gpt2+rotary", "--length", "0"], "length"),
    ],
)
def test_no_option_is_taken_and_ignored(words, told, capsys):
    assert main(["compare", *words, "--no-open"]) == 2
    assert told in capsys.readouterr().err
