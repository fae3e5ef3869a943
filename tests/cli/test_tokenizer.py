"""anyformer tokenizer."""

import pytest

from anyformer.cli.main import main
from anyformer.data.tokenizer import Tokenizer


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("The cat sat on the mat.\n" * 20)
    return path


def test_train_and_show(text, tmp_path, capsys):
    out = str(tmp_path / "made")
    words = ["tokenizer", "train", "bpe", "--data", str(text), "--vocab", "270", "--out", out]
    assert main(words) == 0
    assert "Tokenizer(2" in capsys.readouterr().out
    assert main(["tokenizer", "show", out, "The cat"]) == 0
    shown = capsys.readouterr().out
    assert "back: 'The cat'" in shown and str(Tokenizer.load(out).encode("The cat")) in shown
    assert main(words) == 2
    assert "has a tokenizer already" in capsys.readouterr().err


def test_styles_and_options(text, tmp_path):
    out = str(tmp_path / "made")
    words = ["tokenizer", "train", "bytes", "--style", "t5", "--sentinels", "3", "--out", out]
    assert main([*words, "--extra", "<en>", "<de>"]) == 0
    made = Tokenizer.load(out)
    assert made.id("<extra_id_2>") == len(made) - 3 and made.id("<de>") == 4
    cased = str(tmp_path / "cased")
    words = ["tokenizer", "train", "wordpiece", "--data", str(text), "--cased", "--vocab", "90"]
    assert main([*words, "--out", cased]) == 0
    assert Tokenizer.load(cased).decode(Tokenizer.load(cased).encode("The")) == "The"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "bpe"], "--out DIR"),
        (["train", "bpe", "--out", "x"], "needs --data"),
        (["train", "bep", "--out", "x", "--data", "{text}"], "did you mean 'bpe'"),
        (["train", "bpe", "--out", "x", "--data", "{text}", "--vocab", "9"], "too small"),
        (["show"], "name the folder"),
        (["show", "/nowhere"], "is no folder"),
    ],
)
def test_errors_are_one_line(words, said, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["tokenizer", *(word.format(text=text) for word in words)]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
    assert not (tmp_path / "x").exists()
