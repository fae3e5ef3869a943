"""anyformer attend."""

import io
import sys

import pytest

from anyformer.cli.main import main
from tests.tasks.attending import folder, read


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return str(folder(tmp_path_factory.mktemp("model")))


def test_a_page_is_written(home, tmp_path, capsys):
    out = tmp_path / "deep" / "page.html"
    words = ["attend", home, "the cat sat", "--layers", "1", "--heads", "0-1", "--no-png"]
    assert main([*words, "--out", str(out), "--open"]) == 0  # no terminal: nothing opens
    assert capsys.readouterr().out == f"page: {out}\n"
    data, found = read(out.read_text(encoding="utf-8"))
    assert data["labels"] == [["the", "cat", "sat"]]
    assert [w.shape for w in found] == [(2, 3, 3)]


def test_a_picture_is_written_beside_it(home, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="a PNG needs matplotlib")
    out = tmp_path / "page.html"
    assert main(["attend", home, "the cat", "--out", str(out)]) == 0
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path / "page.png") in capsys.readouterr().out


def test_without_matplotlib_the_page_is_written(home, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("anyformer.cli.attend.find_spec", lambda name: None)
    out = tmp_path / "page.html"
    assert main(["attend", home, "the cat", "--out", str(out)]) == 0
    assert "pip install 'anyformer[plots]'" in capsys.readouterr().err
    assert main(["attend", home, "cat", "--out", str(out), "--png", str(tmp_path / "a.png")]) == 2
    assert "a PNG needs matplotlib: pip install" in capsys.readouterr().err


def test_text_from_standard_input(home, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat sat the dog"))
    out = tmp_path / "page.html"
    assert main(["attend", home, "-", "--first", "2", "--no-png", "--out", str(out)]) == 0
    assert read(out.read_text(encoding="utf-8"))[0]["labels"] == [["the", "cat"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cat", "--layers", "2"], "there is no layer 2; this model has 0-1"),
        (["cat", "--layers", "x"], "--layers 'x': write numbers and spans of them, as 0,3-5"),
        (["cat", "--heads", "0-9999999999"], "--heads '0-9999999999': write numbers"),
        (["cat", "--heads", "1-0"], "no head is chosen"),
        (["cat " * 200], "200 tokens"),
        ([], "there is no text"),
        (["cat", "--png", "a.png", "--no-png"], "exclude each other"),
    ],
)
def test_errors_are_one_line(home, words, message, tmp_path, capsys):
    assert main(["attend", home, *words, "--out", str(tmp_path / "page.html")]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "page.html").exists()
