"""anyformer data."""

import pytest

from anyformer.cli.main import main
from anyformer.data import registry
from anyformer.data.train_tokenizer import train


@pytest.fixture
def home(tmp_path):
    train("bytes").save(tmp_path / "tokenizer")
    (tmp_path / "text.txt").write_text("first\n\nsecond\n")
    (tmp_path / "rows.jsonl").write_text('{"body": "third"}\n{"bo\n')
    return tmp_path


def prepared(home, *more):
    words = ["data", "prepare", "--tokenizer", str(home / "tokenizer"), "--out", str(home / "out")]
    return main([*words, *map(str, more)])


def test_prepare_and_show(home, capsys):
    assert prepared(home, home / "text.txt", "--split", "block", "--segments", "line") == 0
    assert "2 documents, 11 tokens" in capsys.readouterr().out
    assert main(["data", "show", str(home / "out")]) == 0
    plain = capsys.readouterr().out
    assert "documents" in plain and "uint16" in plain and "line" in plain
    main(["data", "show", str(home / "out"), "--tokenizer", str(home / "tokenizer")])
    assert "begins 'firstsecond'" in capsys.readouterr().out
    assert prepared(home, home / "text.txt") == 2
    assert "there already" in capsys.readouterr().err
    assert prepared(home, home / "text.txt", "--overwrite") == 0


def test_bad_records(home, capsys):
    rows = home / "rows.jsonl"
    assert prepared(home, rows, "--field", "body") == 2
    assert "rows.jsonl:2: not valid JSON" in capsys.readouterr().err
    assert prepared(home, rows, home / "rows.jsonl", "--field", "body", "--on-bad", "skip") == 0
    assert "2 documents, 10 tokens, 2 bad records left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prepare", "x.txt"], "needs --tokenizer"),
        (["fetch"], "name a data set"),
        (["fetch", "nothing-like-it"], "unknown data set"),
        (["show", "/nowhere"], "holds no token shards"),
    ],
)
def test_errors_are_one_line(words, said, capsys):
    assert main(["data", *words]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_list_names_every_data_set_with_its_licence(capsys):
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == registry.names()
    for name, line in zip(registry.names(), lines[1:], strict=True):
        assert registry.get(name).data_licence in line


def test_fetch_asks_the_registry(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(registry, "fetch", asked.append)
    name = registry.names()[-1]
    assert main(["data", "fetch", name]) == 0
    assert asked == [name] and "is ready" in capsys.readouterr().out
