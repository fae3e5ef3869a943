"""Documents from files: formats, bad input, and memory that does not grow."""

import gzip
import json
import os
import tracemalloc

import pytest

from anyformer.data import sources, stream
from anyformer.data.sources import PIECE, source
from anyformer.errors import DataError


def documents(what, **options):
    """Whole documents with their names."""
    found, held = [], ""
    for piece in source(what, **options).pieces():
        held += piece.text
        if piece.last:
            found.append((held, piece.name))
            held = ""
    assert not held
    return found


def texts(what, **options):
    return [text for text, _ in documents(what, **options)]


@pytest.fixture
def write(tmp_path):
    def make(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def test_a_text_file_is_one_document_or_blocks_or_lines(write):
    path = write("a.txt", "one\r\ntwo\r\n\r\n\r\nthree\n")
    assert texts(path) == ["one\ntwo\n\n\nthree\n"]
    assert texts(path, split="block") == ["one\ntwo", "three"]
    assert texts(path, split="line") == ["one", "two", "three"]
    assert documents(path, name="file") == [("one\ntwo\n\n\nthree\n", "a")]


def test_records(write):
    rows = [{"text": "a\nb", "label": 1}, {"text": "c", "label": None}]
    path = write("a.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n")
    assert documents(path, name="label") == [("a\nb", "1"), ("c", None)]
    assert texts(write("a.csv", 'text,x\n"a\nb, c",1\nd,2\n')) == ["a\nb, c", "d"]
    assert texts(write("b.tsv", "x\tbody\n1\tq\n"), field="body") == ["q"]
    packed = write("c.jsonl.gz", gzip.compress(path.read_bytes()))
    assert texts(packed) == texts(path) == texts(rows)


def test_folders_are_read_in_order(write, tmp_path):
    write("d/b.txt", "b"), write("d/a/z.md", "z"), write("d/.git/x.txt", "x")
    write("d/c.jsonl", '{"text": "c"}'), write("d/skip.bin", b"\0")
    assert texts(tmp_path / "d") == ["z", "b", "c"]
    assert texts(tmp_path / "d", suffixes=(".md",)) == ["z"]
    assert texts([tmp_path / "d" / "b.txt", tmp_path / "d" / "a"]) == ["b", "z"]
    assert texts([str(tmp_path / "d" / "b.txt")]) == ["b"]
    assert texts(["no file", "at all"]) == ["no file", "at all"]


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": ["a", "b"], "n": [1, 2]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert documents(tmp_path / "a.parquet", name="n") == [("a", "1"), ("b", "2")]
    with pytest.raises(DataError, match="no field 'body'; it has 'text', 'n'"):
        texts(tmp_path / "a.parquet", field="body")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="can't be read as Parquet"):
        texts(tmp_path / "b.parquet")


@pytest.mark.filterwarnings("ignore")
def test_datasets(tmp_path):
    datasets = pytest.importorskip("datasets")
    pyarrow = pytest.importorskip("pyarrow")
    rows = datasets.Dataset(pyarrow.table({"text": ["a", "b"], "n": [1, 2]}), fingerprint="abc")
    assert documents(rows, name="n") == [("a", "1"), ("b", "2")]
    parts = datasets.DatasetDict(train=rows, test=rows)
    with pytest.raises(DataError, match="parts train, test"):
        source(parts)
    assert texts(parts, part="test") == ["a", "b"]
    rows.save_to_disk(tmp_path / "saved")
    assert texts(tmp_path / "saved") == ["a", "b"]
    assert source(rows).signature() == source(rows).signature()


BAD = {
    "empty": ("a.txt", b"", "is empty"),
    "binary": ("a.txt", b"text\0more", "binary"),
    "latin": ("a.txt", b"x" * 300_000 + b"caf\xe9 ", r"byte 300003 is 0xe9.*encoding="),
    "cut": ("a.txt", b"caf\xc3", "byte 3 is 0xc3"),
    "utf-16": ("a.txt", "text".encode("utf-16"), "encoding='utf-16'"),
    "json": ("a.jsonl", b'{"text": "a"}\n\n{"text": \n', r"a.jsonl:3: not valid JSON"),
    "array": ("a.json", b'[{"text": "a"}]', "a list, not an object"),
    "deep": ("a.jsonl", b"[" * 100_000, "not valid JSON"),
    "field": ("a.jsonl", b'{"body": "a", "id": 1}', "no field 'text'; it has 'body', 'id'"),
    "type": ("a.jsonl", b'{"text": 5}', "'text' is a int, not a text"),
    "half": ("a.jsonl", b'{"text": "\\ud800"}', "surrogate"),
    "cells": ("a.csv", b"text,b\n1,2\n3\n", "a.csv:3: 1 cells under 2 columns"),
    "column": ("a.csv", b"a,b\n1,2\n", "no field 'text'; it has 'a', 'b'"),
    "gzip": ("a.txt.gz", gzip.compress(b"text" * 9999)[:-30], "no whole gzip file"),
    "no gzip": ("a.txt.gz", b"text", "no whole gzip file"),
    "bomb": ("a.txt.gz", gzip.compress(bytes(b"a" * (stream.FREE + 9))), "unpacks to more"),
}


@pytest.mark.parametrize(("name", "content", "said"), BAD.values(), ids=BAD)
def test_bad_files_are_told(write, name, content, said):
    with pytest.raises(DataError, match=said):
        texts(write(name, content))


def test_bad_records_are_skipped_and_counted(write):
    path = write("a.jsonl", b'{"text": "a"}\n{"text"\n{"b": 1}\n{"text": "d"}\n')
    found = source(path, on_bad="skip")
    assert [piece.text for piece in found.pieces()] == ["a", "d"] and found.bad == 2


def test_other_encodings_and_marks(write):
    assert texts(write("a.txt", "café".encode("utf-16")), encoding="utf-16") == ["café"]
    assert texts(write("b.txt", "café".encode("latin-1")), encoding="latin-1") == ["café"]
    assert texts(write("c.txt", "\ufeffcafé")) == ["café"]
    with pytest.raises(DataError, match="encoding='klingon' is not known"):
        texts(write("d.txt", "x"), encoding="klingon")


def test_what_is_no_source(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for what, said in (
        (tmp_path / "none", "is not there"),
        (tmp_path / "pipe", "no ordinary file"),
        (5, "no source"),
    ):
        with pytest.raises(DataError, match=said):
            texts(what)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.bin").write_bytes(b"x")
    with pytest.raises(DataError, match=r"no files of .*it has \.bin"):
        texts(tmp_path / "d")
    with pytest.raises(DataError, match="did you mean 'line'"):
        source(tmp_path, split="lines")


@pytest.mark.parametrize("split", sources.SPLITS)
@pytest.mark.parametrize("word", ["word ", "no_space"])
def test_long_documents_come_in_pieces_that_are_the_text(write, split, word):
    long = (word * (3 * PIECE // len(word))).strip()
    path = write("a.txt", f"first\n\n{long}\n\nlast")
    pieces = list(source(path, split=split).pieces())
    assert all(len(piece.text) <= 2 * PIECE + stream.CHUNK for piece in pieces)
    joined = texts(path, split=split)
    assert joined == ([path.read_text()] if split == "file" else ["first", long, "last"])
    cuts = [piece.text[-1] for piece in pieces if not piece.last]
    assert len(cuts) >= 2 and not any(mark.isspace() for mark in cuts)


def test_memory_does_not_grow_with_the_file(write):
    sizes = []
    for times in (8, 24):
        path = write(f"{times}.txt", "one line of text without an end " * (PIECE // 32 * times))
        tracemalloc.start()
        for _ in source(path, split="line").pieces():
            pass
        sizes.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert sizes[1] < 1.1 * sizes[0]


def test_a_record_that_does_not_fit_is_told(write):
    raw = stream.Counted(write("a.jsonl", "x\n" + "y" * (2 * stream.CHUNK)))
    with pytest.raises(DataError, match=r"a.jsonl:2: a line of more than 1000"):
        list(stream.lines(raw, "utf-8", 1000))
    raw.close()


def test_checksums_of_what_was_read(write):
    import hashlib

    path = write("a.txt", "some text")
    found, heard = source(path), []
    list(found.pieces(heard.append))
    digest = hashlib.sha256(b"some text").hexdigest()
    assert found.files == [{"path": str(path), "bytes": 9, "sha256": digest}]
    assert sum(heard) == found.size == 9
