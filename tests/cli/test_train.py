"""`anyformer train` and `resume` as a user types them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anyformer.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SIZE = ["dim=16", "depth=1", "heads=2"]
QUICK = ["--steps", "4", "--batch", "2", "--length", "16", "--tokenizer", "bytes"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("One line after another, and so it goes on. " * 60)
    return tmp_path


def test_a_run_has_numbers_a_sample_and_a_folder(capsys):
    assert main(["train", "gpt2", *SIZE, "--data", "a.txt", *QUICK]) == 0
    told = capsys.readouterr().out
    assert "4 steps; validation: loss" in told and "a sample:\nThe " in told
    assert "runs/gpt2-1/model" in told
    assert main(["train", "gpt2", *SIZE, "--data", "a.txt", *QUICK]) == 0
    assert Path("runs/gpt2-2/model/model.safetensors").is_file()


def test_settings_are_reached_by_path(capsys):
    more = ["--set", "optimiser=Muon", "--set", "clip=0.5", "--seed", "3", "--lr", "0.01"]
    assert main(["train", "gpt2", *SIZE, "--data", "a.txt", *QUICK, *more, "--out", "r"]) == 0
    settings = json.loads(Path("r/run.json").read_text())["settings"]
    assert settings["optimiser"]["is"] == "Muon" and settings["clip"] == 0.5
    assert (settings["seed"], settings["lr"]) == (3, 0.01)


def test_float8_on_a_cpu_is_refused_in_words(capsys):
    more = ["--float8", "--precision", "bfloat16", "--device", "cpu"]
    assert main(["train", "gpt2", *SIZE, "--data", "a.txt", *QUICK, *more]) == 2
    assert "float8=True: cpu has no products in float8" in capsys.readouterr().err
    assert main(["train", "gpt2", *SIZE, "--data", "a.txt", *QUICK, *more[:1], "--out", "r"]) == 2
    assert "precision='bfloat16'" in capsys.readouterr().err


def test_an_encoder_has_no_sample(capsys):
    words = ["--objective", "masked", "--ask", "rate=0.3", "--tokenizer", "wordpiece:60"]
    options = ["--data", "a.txt", "--steps", "2", "--batch", "2", "--length", "16", "--out", "r"]
    assert main(["train", "bert", *SIZE, *options, *words]) == 0
    assert "a sample" not in capsys.readouterr().out
    assert json.loads(Path("r/run.json").read_text())["objective"]["rate"] == 0.3


@pytest.mark.slow
def test_a_killed_run_is_resumed(home):
    command = [sys.executable, "-m", "anyformer"]
    words = ["train", "gpt2", *SIZE, "--data", "a.txt", *QUICK, "--out", "r"]
    words[words.index("4")] = "4000"
    words += ["--set", "schedule.warmup=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, *words], env=environment, stderr=subprocess.PIPE)
    deadline = time.time() + 120
    while not list(Path("r/checkpoints").glob("step-*/manifest.json")) and time.time() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 130, said
    record = json.loads(Path("r/run.json").read_text())
    last = max(Path("r/checkpoints").iterdir()).name
    done = int(last.removeprefix("step-"))
    record["settings"]["steps"] = done + 2
    Path("r/run.json").write_text(json.dumps(record))
    assert main(["resume", "r"]) == 0
    steps = [json.loads(line)["step"] for line in Path("r/metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == done + 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "gpt2", "--data", "nowhere"], "nowhere is not there"),
        (["train", "gpt2", "depth"], "not of the form key=value"),
        (["train", "gpt2", *SIZE, "--data", "a.txt", "--set", "stepss=3"], "did you mean 'steps'"),
        (["resume", "nowhere"], "nowhere is no run"),
    ],
)
def test_mistakes_are_one_line_and_status_two(words, told, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1
