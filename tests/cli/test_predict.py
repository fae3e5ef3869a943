"""`anyformer predict`: lines in, JSON lines out, in order; what is wrong with some of them."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import anyformer
from anyformer import spec as S
from anyformer.cli.main import main
from anyformer.cli.predict import TASKS
from anyformer.tasks import registry
from tests.tasks.tiny import built, folder, texts


@pytest.fixture
def home(tmp_path):
    return folder(tmp_path / "m", built("bert", S.Classes(count=2), "bert", length=64), "bert")


def said(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_plain_lines_of_a_pipe(home, capsys, monkeypatch):
    given = texts(6, high=8)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n\n".join(given).encode())))
    assert main(["predict", "classify", home]) == 0
    wanted = [anyformer.task("classify", home)(text) for text in given]
    assert [one["label"] for one in said(capsys)] == [one["label"] for one in wanted]


def test_bad_lines_are_told_and_the_others_answered(home, capsys, tmp_path):
    data = tmp_path / "in.jsonl"
    rows = [
        b'{"review": "a film"}',
        b'{"review": ',
        b"[1]",
        b'{"text": ""}',
        b"\xff",
        b"",
        b'"a book"',
    ]
    data.write_bytes(b"\n".join(rows))
    assert main(["predict", "classify", home, str(data), "--field", "review"]) == 1
    found = said(capsys)
    assert [one.get("line") for one in found] == [None, 2, 3, 4, 5, None]
    assert "not JSON" in found[1]["error"] and "not list" in found[2]["error"]
    assert "empty" in found[3]["error"] and "UTF-8" in found[4]["error"]
    assert found[0]["label"] and found[5]["label"]


def test_fields_options_and_a_file_for_results(tmp_path, capsys):
    model = folder(tmp_path / "m", built("bert", S.Span(), "bert", length=64), "bert")
    rows = [{"q": "who met Bob", "context": text} for text in texts(5, 10, 40)]
    data, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    words_ = ["predict", "answer", model, str(data), "top=2", "--field", "question=q"]
    assert main([*words_, "--out", str(out), "--batch", "2"]) == 0
    assert capsys.readouterr().out == ""
    found = [json.loads(line) for line in out.read_text().splitlines()]
    for row, two in zip(rows, found, strict=True):
        assert len(two) == 2
        assert all(row["context"][one["start"] : one["end"]] == one["answer"] for one in two)


def test_images_by_their_files(tmp_path, capsys):
    model = folder(tmp_path / "m", built("vit", S.Classes(count=3), image=8, patch=4))
    image = tmp_path / "a.npy"
    np.save(image, np.zeros((8, 8, 3), np.uint8))
    (tmp_path / "in.txt").write_text(f"{image}\nnowhere.png\n")
    assert (
        main(["predict", "classify-image", model, str(tmp_path / "in.txt"), "--labels", *"abc"])
        == 1
    )
    first, second = said(capsys)
    assert first["label"] in "abc" and "nowhere.png" in second["error"] and second["line"] == 2


def test_what_cannot_be_begun(home, capsys, tmp_path):
    for words_, wanted in (
        (["clasify", home], "did you mean 'classify'"),
        (["answer", home], "it can do: classify, embed"),
        (["classify", home, "nowhere.txt"], "can't read nowhere.txt"),
        (["classify", home, "a.txt", "b.txt"], "one file is read"),
        (["classify", home, "tops=2"], "did you mean 'top'"),
        (["classify", str(tmp_path / "nothing")], "there is no folder"),
    ):
        assert main(["predict", *words_]) == 2
        assert wanted in capsys.readouterr().err
    data = tmp_path / "x.txt"
    data.write_text("a film")
    assert main(["predict", "classify", home, str(data), "--out", str(data)]) == 2
    assert "is the file that is read" in capsys.readouterr().err and data.read_text() == "a film"


def test_each_line_is_answered_at_once_where_asked(home):
    """A line's answer comes before the next line is sent."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, [str(root / "src"), os.environ.get("PYTHONPATH")]))
    run = [sys.executable, "-m", "anyformer", "predict", "classify", home, "-", "--batch", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(run, env={**os.environ, "PYTHONPATH": path}, **pipes) as done:
        assert done.stdin is not None and done.stdout is not None
        for text in texts(2, high=5):
            done.stdin.write(text + "\n")
            done.stdin.flush()
            assert "label" in json.loads(done.stdout.readline())
        done.stdin.close()
        assert done.wait(60) == 0


def test_help_and_completion(capsys):
    assert tuple(registry.TASKS) == TASKS
    with pytest.raises(SystemExit):
        main(["predict", "--help"])
    out = capsys.readouterr().out
    assert "anyformer predict classify" in out and "example" in out
    if shutil.which("bash") is not None:
        assert main(["complete", "bash"]) == 0
        ask = "\nCOMP_WORDS=(anyformer predict cla); COMP_CWORD=2; _anyformer; echo ${COMPREPLY[@]}"
        script = capsys.readouterr().out + ask
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=20)
        assert done.stdout.split() == ["classify", "classify-tokens", "classify-image"]


def test_a_tuned_folder_keeps_its_labels_and_fields(tmp_path, capsys):
    from anyformer.train import finetune

    data = tmp_path / "r.csv"
    rows = [f"a {w} film,{n}" for w, n in (("fine", "good"), ("dull", "bad"))] * 8
    data.write_text("\n".join(["review,stars", *rows]))
    sizes = {"dim": 16, "depth": 1, "heads": 2}
    done = finetune(
        "bert", "classification", str(data), tmp_path / "run", options=sizes,
        fields={"text": "review", "label": "stars"},
    )  # fmt: skip
    capsys.readouterr()
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"review": "a fine film"}\n{"text": "a dull film"}')
    assert main(["predict", "classify", str(done.folder / "model"), str(lines)]) == 0
    found = said(capsys)
    assert {one["label"] for one in found} <= {"good", "bad"} and len(found) == 2
    assert all(0.0 < one["score"] <= 1.0 for one in found)


def test_labels_end_before_a_file(home, capsys, tmp_path, monkeypatch):
    data = tmp_path / "in.txt"
    data.write_text("a film\na book\n")
    named = ["--labels", "bad", "good"]
    wanted = [
        one["label"]
        for one in anyformer.task("classify", home, labels=named[1:])(["a film", "a book"])
    ]
    for words in ([str(data), *named], [*named, "--", str(data)], [*named, "--quiet", str(data)]):
        assert main(["predict", "classify", home, *words]) == 0
        assert [one["label"] for one in said(capsys)] == wanted
    assert main(["predict", "classify", home, *named, str(data)]) != 0
    told = capsys.readouterr().err
    assert "before --labels" in told and f"--labels bad good -- {data}" in told
    monkeypatch.chdir(tmp_path)
    assert main(["predict", "classify", home, *named, "-"]) != 0
    assert "before --labels" in capsys.readouterr().err
