"""Corpora: made once, found again, made anew when something changed."""

import os

import pytest

from anyformer.data import corpus as module
from anyformer.data.corpus import cache_folder, corpus
from anyformer.data.prepare import prepare
from anyformer.data.train_tokenizer import train
from anyformer.errors import DataError


@pytest.fixture(scope="module")
def tokenizer():
    return train("bytes")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "a text.txt"
    path.write_text("some text")
    return path


def test_the_second_time_nothing_is_made(tokenizer, text, tmp_path, monkeypatch):
    first = corpus(text, tokenizer, tmp_path / "cache")
    assert first.tokens == 9 and first.folder.name.startswith("a_text.txt-")
    monkeypatch.setattr(module, "prepare", None)
    again = corpus(str(text), tokenizer, tmp_path / "cache", workers=2)
    assert again.folder == first.folder and corpus(again, tokenizer) is again
    assert corpus(first.folder, tokenizer).fingerprint == first.fingerprint


def test_changes_are_noticed(tokenizer, text, tmp_path):
    cache = tmp_path / "cache"
    made = [corpus(text, tokenizer, cache)]
    text.write_text("other txt")
    made.append(corpus(text, tokenizer, cache))
    os.utime(text, ns=(0, 0))
    made.append(corpus(text, tokenizer, cache))
    made.append(corpus(text, tokenizer, cache, split="line"))
    made.append(corpus(text, tokenizer, cache, segments="line"))
    made.append(corpus(text, tokenizer, cache, end="eos"))
    made.append(corpus(text, train("bytes", style="bert"), cache))
    assert len({shards.folder for shards in made}) == 7
    assert made[1].fingerprint == made[2].fingerprint != made[0].fingerprint


def test_lists_and_texts_in_memory(tokenizer, text, tmp_path):
    cache = tmp_path / "cache"
    (tmp_path / "b.txt").write_text("b")
    assert corpus([text, str(tmp_path / "b.txt")], tokenizer, cache).documents == 2
    assert corpus(["one", "two", "three"], tokenizer, cache).documents == 3
    assert corpus(["one", "two", "three"], tokenizer, cache).tokens == 11
    with pytest.raises(DataError, match="once only"):
        corpus((word for word in "ab"), tokenizer, cache)


def test_a_data_set_by_its_name(tokenizer, tmp_path, monkeypatch):
    rows = {"train": [("one", "first text")], "test": [("two", "t")]}
    monkeypatch.setattr(module.registry, "texts", lambda name, split: iter(rows[split]))
    name = next(n for n in module.registry.names("text"))
    shards = corpus(name, tokenizer, tmp_path, name="name")
    assert (shards.tokens, shards.names(0)) == (10, "one")
    assert corpus(f"{name}:test", tokenizer, tmp_path).tokens == 1
    without = next(n for n in module.registry.names() if n not in module.registry.names("text"))
    with pytest.raises(DataError, match="no plain texts"):
        corpus(without, tokenizer, tmp_path)
    with pytest.raises(DataError, match="is not there, and no data set"):
        corpus("no/such/thing", tokenizer, tmp_path)


def test_shards_of_another_kind_are_refused(tokenizer, text, tmp_path):
    shards = prepare(text, tokenizer, tmp_path / "s", segments="line")
    assert corpus(tmp_path / "s", tokenizer, segments="line").documents == 1
    with pytest.raises(DataError, match="segments='line', not 'sentence'"):
        corpus(shards, tokenizer, segments="sentence")
    with pytest.raises(DataError, match="another tokenizer"):
        corpus(shards, train("bytes", style="bert"))


def test_the_cache_is_where_xdg_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "anyformer" / "shards"
