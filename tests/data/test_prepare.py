"""Texts to shards: the same for any number of workers, whole or not at all."""

import os
import subprocess
import sys

import numpy as np
import pytest

from anyformer.data import crew, sources
from anyformer.data import prepare as module
from anyformer.data.prepare import prepare
from anyformer.data.train_tokenizer import train
from anyformer.errors import DataError, InputError
from tests.data.vocabularies import LINES


@pytest.fixture(scope="module")
def tokenizer():
    return train("bpe", LINES, 400)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES * 3))
    return path


@pytest.mark.parametrize("segments", [None, "sentence"])
def test_the_number_of_workers_changes_nothing(tokenizer, text, tmp_path, segments, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 3000)
    found = [
        prepare(
            text, tokenizer, tmp_path / f"{n}", n, segments, split="block", shard=5000, end="eos"
        )
        for n in (0, 1, 3)
    ]
    assert len({shards.fingerprint for shards in found}) == 1 and found[0].shards > 2
    for shards in found:
        shards.verify()


@pytest.mark.parametrize("end", [None, "eos"])
@pytest.mark.parametrize("segments", [None, "sentence"])
def test_documents_written_at_once_or_one_by_one(
    tokenizer, text, tmp_path, segments, end, monkeypatch
):
    made = lambda name: prepare(
        text, tokenizer, tmp_path / name, segments=segments, end=end, split="line", shard=9000
    )
    at_once = made("a")
    monkeypatch.setattr(module.Writer, "add_whole", lambda *_: False)
    assert made("b").fingerprint == at_once.fingerprint


def test_documents_are_what_the_tokenizer_gives(tokenizer, text, tmp_path):
    shards = prepare(text, tokenizer, tmp_path / "s", split="line", end="eos")
    lines = [line for line in text.read_text().split("\n") if line.strip()]
    assert shards.documents == len(lines) and shards.end == "eos"
    (end,) = tokenizer.need("eos")
    for k in range(0, len(lines), 97):
        assert shards.document(k).tolist() == [*tokenizer.encode(lines[k]), end]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_pieces_of_a_long_document_give_the_ids_of_the_whole(kind, tmp_path, monkeypatch):
    """Cut before a space, where these tokenizers cut as well."""
    monkeypatch.setattr(sources, "PIECE", 4000)
    ours = train(kind, LINES, 500)
    text = "\n".join(LINES).strip()
    shards = prepare([text], ours, tmp_path / "s")
    assert shards.documents == 1 and shards.document(0).tolist() == ours.encode(text)


def test_segments_partition_documents(tokenizer, text, tmp_path):
    shards = prepare(text, tokenizer, tmp_path / "s", segments="paragraph")
    parts = shards.segments(0)
    assert len(parts) > 5 and np.array_equal(np.concatenate(parts), shards.document(0))
    assert "".join(tokenizer.decode(part) for part in parts) == text.read_text()


def test_progress_hears_of_every_byte(tokenizer, text, tmp_path):
    heard = []
    prepare(text, tokenizer, tmp_path / "s", progress=lambda done, all: heard.append((done, all)))
    assert heard == sorted(heard) and heard[-1] == (text.stat().st_size,) * 2


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_left_when_it_fails(tokenizer, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n' * 50 + "{\n")
    for workers in (0, 2):
        with pytest.raises(DataError, match=r"bad.jsonl:51"):
            prepare(tmp_path / "bad.jsonl", tokenizer, tmp_path / "s", workers)
    (tmp_path / "blank.txt").write_text(" \n\n")
    with pytest.raises(DataError, match=r"no text in .*blank.txt"):
        prepare(tmp_path / "blank.txt", tokenizer, tmp_path / "s")
    with pytest.raises(InputError, match="no mask token"):
        prepare(["a"], tokenizer, tmp_path / "s", end="mask")
    with pytest.raises(DataError, match="workers=-1"):
        prepare(["a"], tokenizer, tmp_path / "s", -1)
    assert left(tmp_path) == ["bad.jsonl", "blank.txt"]


def test_what_is_there_stays_unless_told_otherwise(tokenizer, tmp_path):
    first = prepare(["a b"], tokenizer, tmp_path / "s")
    with pytest.raises(DataError, match="there already"):
        prepare(["c"], tokenizer, tmp_path / "s")
    second = prepare(["c"], tokenizer, tmp_path / "s", overwrite=True)
    assert second.documents == 1 and second.fingerprint != first.fingerprint
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="something else"):
        prepare(["c"], tokenizer, tmp_path / "other", overwrite=True)
    assert left(tmp_path / "other") == ["thesis.txt"] and left(tmp_path) == ["other", "s"]


def test_what_a_killed_process_left_is_swept(tokenizer, tmp_path):
    import socket

    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    old = tmp_path / f".s.{socket.gethostname()}.{int(dead.stdout)}.partial"
    other = tmp_path / f".s.{socket.gethostname()}.{os.getppid()}.partial"
    old.mkdir(), other.mkdir()
    prepare(["a"], tokenizer, tmp_path / "s")
    assert left(tmp_path) == [other.name, "s"]


FULL = """
import resource
import resource, signal, sys
from anyformer.data.prepare import prepare
from anyformer.data.tokenizer import Tokenizer
tokenizer = Tokenizer.load(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    prepare(["some words " * 20000], tokenizer, sys.argv[2])
except ValueError as error:
    print(error)
"""


def test_a_full_disk_leaves_nothing(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    command = [sys.executable, "-c", FULL, str(tmp_path / "tokenizer"), str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "can't write" in done.stdout and "nothing was left" in done.stdout, done.stderr
    assert left(tmp_path) == ["tokenizer"]


def test_a_worker_that_dies_is_named(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(crew, "START", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(DataError, match=r"worker 0 .* died with status -9"):
        prepare(["a b c"], tokenizer, tmp_path / "s", workers=1)
    assert left(tmp_path) == []


def test_threads_of_the_library_are_as_before(tokenizer, tmp_path, monkeypatch):
    monkeypatch.delenv(crew.THREADS, raising=False)
    prepare(["a"], tokenizer, tmp_path / "s", workers=0)
    assert crew.THREADS not in os.environ
