"""What ships with Python, as data sets: enough of it, in splits that don't overlap or move."""

import ast
import itertools
import keyword
import subprocess
import sys

import pytest

from anyformer.data import registry
from anyformer.data.registry import library, split
from anyformer.errors import DataError

SETS = [
    ("python-docs", "text", 50),
    ("python-docstrings", "summarisation", 1000),
    ("python-docstrings", "classification", 3000),
    ("python-docstrings", "text", 5000),
    ("python-choice", "multiple-choice", 1000),
    ("python-qa", "question-answering", 500),
]
INPUT = {"classification": "text", "summarisation": "source", "multiple-choice": "context"}


@pytest.fixture
def few(monkeypatch):
    """Some modules only: all of them take seconds."""
    all_of_them = library.codes
    flat = (pair for pair in all_of_them() if "." not in pair[0] and len(pair[1]) < 60_000)
    some = list(itertools.islice(flat, 25))
    monkeypatch.setattr(library, "codes", lambda root=None: iter(some))


@pytest.mark.parametrize(("name", "task", "least"), SETS)
def test_there_is_enough_and_the_splits_are_apart(name, task, least):
    splits = {each: registry.load(name, each, task) for each in registry.SPLITS}
    assert len(splits["train"]) >= least
    assert len(splits["validation"]) > 5 and len(splits["test"]) > 5
    column = INPUT.get(task, "context" if task == "question-answering" else "text")
    inputs = [{record[column] for record in records} for records in splits.values()]
    assert not inputs[0] & inputs[1] and not inputs[0] & inputs[2] and not inputs[1] & inputs[2]
    for records in splits.values():
        assert all(set(registry.COLUMNS[task]) <= set(record) for record in records)
    assert registry.load(name, "validation", task) == splits["validation"]


def test_topics_share_no_paragraph():
    seen: set[str] = set()
    for each in registry.SPLITS:
        for _, text in registry.texts("python-docs", each):
            paragraphs = {part for part in text.split("\n\n") if len(" ".join(part.split())) >= 60}
            assert not paragraphs & seen
            seen |= paragraphs


def test_documents_have_their_names():
    documents = dict(registry.texts("python-docs", "train"))
    assert sum(map(len, documents.values())) > 200_000
    assert all(name and text.endswith("\n") for name, text in documents.items())


def test_code_is_the_source_as_it_stands():
    held = {
        name for each in ("validation", "test") for name, _ in registry.texts("python-code", each)
    }
    train = dict(registry.texts("python-code", "train"))
    assert len(train) > 300 and len(held) > 20 and not held & set(train)
    assert not [name for name in train if "test" in name.split(".")[0:1] or "site-packages" in name]
    assert any(ast.parse(text) for text in itertools.islice(train.values(), 3))


def test_classes_of_docstrings_are_the_same_in_every_split():
    labels = [
        {record["label"] for record in registry.load("python-docstrings", each, "classification")}
        for each in registry.SPLITS
    ]
    assert {"email", "logging", "asyncio"} <= labels[0]
    assert labels[1] <= labels[0] and labels[2] <= labels[0]


def test_a_summary_is_not_in_its_source():
    records = registry.load("python-docstrings", "train")
    copied = [r for r in records if r["source"].startswith(r["target"])]
    assert not copied and all("\n" not in record["target"] for record in records)


def test_answers_are_exact_spans():
    for each in registry.SPLITS:
        for record in registry.load("python-qa", each):
            [answer], [start] = record["answers"]["text"], record["answers"]["answer_start"]
            assert record["context"][start : start + len(answer)] == answer == answer.strip()
            assert len(answer.split()) >= 3


def test_of_the_choices_one_is_right():
    bodies = {r["source"]: r["target"] for r in registry.load("python-docstrings", "test")}
    records = registry.load("python-choice", "test")
    assert len({record["label"] for record in records}) == 4
    for record in records:
        assert len(set(record["choices"])) == 4
        assert record["choices"][record["label"]] == bodies[record["context"]]


def test_kinds_of_tokens(few):
    records = registry.load("python-tokens", "train")
    tags = {tag for record in records for tag in record["tags"]}
    assert tags == {"keyword", "name", "op", "string", "number", "comment"}
    for record in records:
        assert 16 <= len(record["words"]) == len(record["tags"]) <= 64
        for word, tag in zip(record["words"], record["tags"], strict=True):
            assert keyword.iskeyword(word) or tag != "keyword"
            assert word.startswith("#") or tag != "comment"
            assert word.isidentifier() or tag != "name"


def test_spans_of_names(few, monkeypatch):
    code = "def f(x, *, y=1):\n    a.b = c.d(x)(y)\n    raise E.F\nclass G(H.I):\n    pass\n" * 2
    monkeypatch.setattr(library, "codes", lambda root=None: iter([("m", code)]))
    [record] = [r for each in registry.SPLITS for r in registry.load("python-spans", each)]
    pairs = list(zip(record["words"], record["tags"], strict=True))
    assert pairs[:8] == [
        *(("def", "O"), ("f", "O"), ("(", "O"), ("x", "B-parameter")),
        *((",", "O"), ("*", "O"), (",", "O"), ("y", "B-parameter")),
    ]
    assert pairs[12:20] == [
        *(("a", "B-target"), (".", "I-target"), ("b", "I-target"), ("=", "O")),
        *(("c", "B-call"), (".", "I-call"), ("d", "I-call"), ("(", "O")),
    ]
    assert ("E", "B-exception") in pairs and ("I", "I-base") in pairs


def test_spans_begin_with_b(few):
    records = [r for each in registry.SPLITS for r in registry.load("python-spans", each)]
    kinds = {tag[2:] for record in records for tag in record["tags"] if tag != "O"}
    assert kinds == {"call", "parameter", "target", "base", "exception"}
    for record in records:
        for before, tag in itertools.pairwise(["O", *record["tags"]]):
            assert not tag.startswith("I-") or before[2:] == tag[2:]


def test_tokens_are_kept_and_kept_apart(few, monkeypatch):
    first = {each: registry.load("python-tokens", each) for each in registry.SPLITS}
    words = [{tuple(r["words"]) for r in records} for records in first.values()]
    assert not words[0] & words[1] and not words[0] & words[2] and not words[1] & words[2]
    monkeypatch.setattr(library, "codes", lambda root=None: pytest.fail("kept, so not read again"))
    assert {each: registry.load("python-tokens", each) for each in registry.SPLITS} == first


def test_damage_to_what_is_kept_is_named(few, tmp_path):
    registry.load("python-tokens", "validation")
    [file] = tmp_path.rglob("validation.jsonl")
    file.write_text(file.read_text()[:-20])
    with pytest.raises(DataError, match=r"validation\.jsonl is damaged .* delete"):
        registry.load("python-tokens", "validation")


def test_without_a_cache_it_works_all_the_same(few, tmp_path, monkeypatch):
    kept = registry.load("python-tokens", "validation")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert registry.load("python-tokens", "validation") == kept


def test_splits_do_not_hang_on_hash_seeds():
    code = "from anyformer.data.registry.split import split_of as s"
    code += "\nprint([s(str(i)) for i in range(99)])"
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": "src"},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1] == f"{[split.split_of(str(i)) for i in range(99)]}\n"
    assert split.split_of("A  b\n") == split.split_of("a b")


def test_shares_of_the_splits():
    found = [split.split_of(f"text {i}") for i in range(20_000)]
    assert 0.89 < found.count("train") / len(found) < 0.91
    assert 0.045 < found.count("test") / len(found) < 0.055


def test_unknown_names_are_answered():
    with pytest.raises(DataError, match="did you mean 'sentiment'"):
        registry.get("sentimnt")
    with pytest.raises(DataError, match="no records for images; it has: text"):
        registry.load("python-docs", task="images")
    with pytest.raises(DataError, match="no split 'dev'"):
        registry.load("python-docs", "dev")
    with pytest.raises(DataError, match="unknown task"):
        registry.names("poetry")


def test_sources_that_cant_be_read_are_left_out(tmp_path):
    (tmp_path / "good.py").write_text('"""A good one."""\n')
    (tmp_path / "bad.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "old.py").write_text("print 'x'\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "more.py").write_text('"""Not this one."""\n')
    assert [doc.name for doc in library.docstrings(tmp_path)] == ["good"]


def test_what_ships_with_python_is_ready():
    assert all(registry.ready(name) == (not registry.get(name).size) for name in registry.names())
