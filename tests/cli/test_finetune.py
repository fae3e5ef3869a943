"""`anyformer finetune` and what it says."""

import json

from anyformer.cli.main import main

TINY = ["dim=16", "depth=1", "heads=2", "--steps", "6", "--batch", "8", "--lr", "0.01"]


def reviews(path, count=30):
    names = ("bad", "good")
    words = ("poor film", "dull book", "fine film", "great book")
    rows = [f"a {words[i % 2 * 2 + i // 2 % 2]},{names[i % 2]}" for i in range(count)]
    path.write_text("\n".join(["review,stars", *rows]) + "\n")
    return str(path)


FIELDS = ["--text", "review", "--label", "stars"]


def test_from_a_table_to_scores(tmp_path, capsys):
    data, out = reviews(tmp_path / "r.csv"), tmp_path / "run"
    words = ["finetune", "bert", *TINY, "--task", "classification", "--data", data, *FIELDS]
    assert main([*words, "--out", str(out), "--set", "evaluation.every=2"]) == 0
    said = capsys.readouterr().out
    assert "6 steps" in said and "validation" in said and "accuracy" in said
    scores = json.loads((out / "scores.json").read_text())["validation"]
    assert f"{scores['accuracy']:.4f}" in said
    assert {"README.md", "task.json", "tokenizer.json"} <= {
        p.name for p in (out / "model").iterdir()
    }
    assert json.loads((out / "run.json").read_text())["settings"]["evaluation"]["every"] == 2


def test_resume_says_the_scores_again(tmp_path, capsys):
    data, out = reviews(tmp_path / "r.csv"), tmp_path / "run"
    words = ["finetune", "bert", *TINY, "--task", "classification", "--data", data, *FIELDS]
    assert main([*words, "--out", str(out)]) == 0
    before = capsys.readouterr().out
    (out / "scores.json").unlink()  # as if the run had been killed before
    assert main(["resume", str(out)]) == 0
    assert capsys.readouterr().out == before


def test_mistakes_are_one_line(tmp_path, capsys):
    data = reviews(tmp_path / "r.csv")
    words = ["finetune", "bert", *TINY, "--task", "classification", "--data", data]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "has no 'label'; it has review, stars: name the field to read" in said
    assert said.count("\n") == 1 and not (tmp_path / "run").exists()
    assert main([*words, *FIELDS, "--labels", "bad", "fair"]) == 2
    assert "known labels: 'bad', 'fair'" in capsys.readouterr().err
