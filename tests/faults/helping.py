"""What the tests of faults share: tiny folders, and refusals that are looked at from all sides."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import anyformer
from anyformer.checkpoint.huggingface import Origin
from anyformer.cli.main import main
from anyformer.data.tokenizer import Tokenizer
from anyformer.data.train_tokenizer import train as train_tokenizer
from anyformer.errors import AnyformerError
from anyformer.model.model import Model

SIZES = {"dim": 8, "depth": 2, "heads": 2, "vocab": 31, "length": 16}
CONFIG, SPEC = "config.json", "anyformer.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SECONDS = 20.0  # that a refusal may take on a busy machine; most take milliseconds
REMEDIES = (
    "did you mean", "known:", "download", "save ", "give ", "take ", "pass ", "choose", "use ",
    "put ", "leave ", "run `", "resume", "install", "convert", "must be", "needs", "takes",
    "make room", "lower", "set ", "ask ", "begin", "copy", "instead", "start", "wait",
    "what works", "write a", "add ", "build ", "split it", "name the", "try ", "unpack it",
)  # fmt: skip


def snapshot(folder: Path) -> dict[str, str]:
    """Every file below a folder with a digest of its content, so that nothing changes unseen."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        plain = path.is_file() and not path.is_symlink()
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if plain else "-"
    return found


@contextmanager
def assert_refused(
    *says: str,
    error: type[Exception] = AnyformerError,
    seconds: float = SECONDS,
    remedy: bool = True,
) -> Iterator[None]:
    """An error of ours in time, whose one message holds all the words and says what to do."""
    before = time.monotonic()
    with pytest.raises(error) as caught:
        yield
    assert time.monotonic() - before < seconds, "it took too long"
    assert_told(str(caught.value), says, remedy)


def assert_told(message: str, says: tuple[str, ...], remedy: bool = True) -> None:
    """That a message holds all the words, has a remedy, is short, and can be shown as it is."""
    for word in says:
        assert word in message, f"{word!r} is not in: {message}"
    if remedy:
        assert any(word in message.lower() for word in REMEDIES), f"no remedy in: {message}"
    assert len(message) < 4000, f"{len(message)} characters"
    assert "Traceback" not in message


class Command:
    """The real command in this process, in a folder whose files are watched."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]):
        self.folder, self.capture = folder, capture

    def ends(self, words: list[Any]) -> tuple[int, str, str]:
        """The exit status of a command, what it printed, and what it said of errors."""
        self.capture.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as end:  # from argparse
            code = int(end.code or 0)
        caught = self.capture.readouterr()
        return code, caught.out, caught.err

    def assert_fails(
        self, words: list[Any], *says: str, code: int = 2, seconds: float = SECONDS
    ) -> str:
        """A command that ends with a status and one line, in time, and leaves all as it was."""
        before, then = snapshot(self.folder), time.monotonic()
        ended, _, err = self.ends(words)
        assert ended == code, err
        assert time.monotonic() - then < seconds, "it took too long"
        told = err.strip().splitlines()
        assert told, "nothing was said"
        if not err.startswith("usage:"):
            assert len(told) == 1, err
            assert told[0].startswith("anyformer: ")
        assert_told(err, says)
        assert "\x1b" not in err
        assert snapshot(self.folder) == before, "something was written"
        return err


def made(name: str = "gpt2", family: str = "gpt2", task: str = "causal-lm", **sizes: Any) -> Model:
    """A tiny model of a published family."""
    torch.manual_seed(0)
    model = anyformer.build(anyformer.recipe(name, **{**SIZES, **sizes})).eval()
    model.origin = Origin(family, task, {})
    return model


@cache
def words() -> Tokenizer:
    """A tokenizer of bytes."""
    return train_tokenizer("bytes", ["a text"], 300, "gpt")


def folder(path: Path, format: str = "huggingface", shard: str = "5GB") -> Path:
    """A folder of a tiny GPT-2."""
    anyformer.checkpoint.save(made(), path, format, shard)
    return path


def writer(path: Path, **sizes: Any) -> Path:
    """A folder of a tiny GPT-2 with its tokenizer of bytes, in our own format."""
    made(vocab=len(words()), **sizes).save_pretrained(path, "anyformer")
    words().save(path)
    return path


def edited(file: Path, **fields: Any) -> None:
    """Change fields of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | fields), "utf-8")


def header_of(file: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file and the bytes behind it."""
    whole = file.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    return json.loads(whole[8 : 8 + length]), whole[8 + length :]


def put_header(file: Path, header: Any, data: bytes) -> None:
    """Write a safetensors file with a header of one's own."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


@contextmanager
def assert_kept(folder: Path) -> Iterator[None]:
    """Nothing below a folder is written, changed or lost."""
    before = snapshot(folder)
    yield
    assert snapshot(folder) == before, "something was written"


def copied(source: Path, to: Path) -> Path:
    """A copy of a folder."""
    shutil.copytree(source, to)
    return to
