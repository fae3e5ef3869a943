"""Fixtures of the fault catalogue: folders to break, the command, a marker that must not appear."""

from pathlib import Path

import pytest

from tests.faults import helping


@pytest.fixture(scope="session")
def _originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder of each kind, made once and only ever copied."""
    home = tmp_path_factory.mktemp("originals")
    return {
        "theirs": helping.folder(home / "theirs"),
        "sharded": helping.folder(home / "sharded", shard="2KB"),
        "ours": helping.folder(home / "ours", "anyformer"),
        "writer": helping.writer(home / "writer"),
    }


@pytest.fixture
def theirs(_originals, tmp_path) -> Path:
    """A folder of Hugging Face's with one file of weights."""
    return helping.copied(_originals["theirs"], tmp_path / "theirs")


@pytest.fixture
def sharded(_originals, tmp_path) -> Path:
    """A folder of Hugging Face's with an index and shards."""
    return helping.copied(_originals["sharded"], tmp_path / "sharded")


@pytest.fixture
def ours(_originals, tmp_path) -> Path:
    """A folder of our own."""
    return helping.copied(_originals["ours"], tmp_path / "ours")


@pytest.fixture
def writer(_originals, tmp_path) -> Path:
    """A folder of our own with a tokenizer, which can write on from a text."""
    return helping.copied(_originals["writer"], tmp_path / "writer")


@pytest.fixture
def command(tmp_path, capsys, monkeypatch) -> helping.Command:
    """The command, run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return helping.Command(tmp_path, capsys)


@pytest.fixture
def marker(tmp_path):
    """A path that hostile content tries to create; a test fails where it comes to be."""
    path = tmp_path / "executed"
    yield path
    assert not path.exists(), "code of a file was run"
