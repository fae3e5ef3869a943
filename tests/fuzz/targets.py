"""What is fuzzed: bytes or words in, a result or an error of ours out, in bounded time and memory.

Each target takes drawn content and a folder to work in. Whatever is raised that is no error of
ours, or takes too long, is a finding.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import anyformer
from anyformer import spec as S
from anyformer.checkpoint.reader import entries_of
from anyformer.cli.main import VERBS, main
from anyformer.data.sources import source
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import AnyformerError
from anyformer.train.material import read
from tests.faults import helping

Draw = st.SearchStrategy[Any]
SQUAD = {"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": "1", "question": "?"}]}]}]}
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([2**31, 2**63, -1, 0, 1e400, "", "../x", "\ud800", "\0"])
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda s: st.lists(s, max_size=3) | st.dictionaries(st.text(max_size=5), s, max_size=3)
)


@cache
def seeds() -> dict[str, Any]:
    """Sound content that is then changed: a config, a spec, a tokenizer, an index."""
    model = helping.made()
    words = json.loads(helping.words()._pipeline.to_str())
    return {
        "config": {"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 31},
        "spec": {"format": 1, "spec": S.to_dict(model.spec)},
        "tokenizer": words,
        "header": {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
        "index": {"metadata": {}, "weight_map": {"a": "model-1.safetensors"}},
        "squad": SQUAD,
    }


def paths(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of a tree of JSON; long lists and tables by their first items."""
    if isinstance(tree, dict):
        inner = list(tree.items())[:12]
    elif isinstance(tree, list):
        inner = list(enumerate(tree))[:4]
    else:
        inner = []
    return [at, *(path for key, value in inner for path in paths(value, (*at, key)))]


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A tree of JSON with another value in one place."""
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = changed(tree[path[0]], path[1:], value)
    return copy


@st.composite
def mutated(draw: Any, name: str) -> bytes:
    """Sound JSON with a few values replaced, or a few bytes of it."""
    tree = seeds()[name]
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.sampled_from(paths(tree)))
        tree = changed(tree, place, draw(VALUES))
    text = bytearray(json.dumps(tree).encode("utf-8", "surrogatepass"))
    if draw(st.integers(0, 4)) == 0:
        text[draw(st.integers(0, len(text) - 1))] = draw(st.integers(0, 255))
    if draw(st.integers(0, 9)) == 0:
        del text[draw(st.integers(0, len(text))) :]
    return bytes(text)


@contextlib.contextmanager
def ours() -> Any:
    """Errors of ours are answers."""
    with contextlib.suppress(AnyformerError):
        yield


def header(content: bytes, home: Path) -> None:
    """A safetensors file with a header like this, whole or as bare bytes."""
    file = home / "x.safetensors"
    file.write_bytes(struct.pack("<Q", len(content)) + content + b"\0" * 8)
    with ours():
        entries_of(file)
    file.write_bytes(content)
    with ours():
        entries_of(file)


def index(content: bytes, home: Path) -> None:
    """A folder with an index of shards like this."""
    (home / helping.INDEX).write_bytes(content)
    (home / helping.CONFIG).write_text(json.dumps(seeds()["config"]))
    with ours():
        anyformer.load(home)


def config(content: bytes, home: Path) -> None:
    """A folder with a config.json like this."""
    if not (home / helping.WEIGHTS).exists():
        helping.folder(home)
    (home / helping.CONFIG).write_bytes(content)
    with ours():
        anyformer.load(home)


def spec(content: bytes, home: Path) -> None:
    """A folder with an anyformer.json like this, and its spec as a file."""
    if not (home / helping.WEIGHTS).exists():
        helping.folder(home, "anyformer")
    (home / helping.SPEC).write_bytes(content)
    with ours():
        anyformer.load(home)
    command(["show", str(home / helping.SPEC), "--json"], home)


def tokenizer(content: bytes, home: Path) -> None:
    """A folder with a tokenizer.json like this, used once."""
    (home / "tokenizer.json").write_bytes(content)
    with ours():
        made = Tokenizer.load(home)
        made.decode(made("a text, and more")["input_ids"])


def lines(content: bytes, home: Path) -> None:
    """JSON lines like these."""
    for name in ("a.jsonl", "a.csv", "a.txt", "a.txt.gz"):
        (home / name).write_bytes(content)
        with ours():
            for _ in source(home / name).pieces():
                pass


def records(content: bytes, home: Path) -> None:
    """Records to fine-tune on like these: every one that is read has fields."""
    for name in ("a.jsonl", "a.csv", "a.tsv", "a.json", "a.conll"):
        (home / name).write_bytes(content)
        for on_bad in ("raise", "skip"):
            with ours():
                assert all(isinstance(record, dict) for record in read(str(home / name), on_bad))


def command(words: list[str], home: Path) -> None:
    """The command with words like these: a known status, never a traceback."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    assert code in (0, 2, 3), (code, words)
    assert "Traceback" not in err.getvalue()


FLAGS = ["--json", "--flat", "--length", "--batch", "--out", "--data", "--tokenizer", "-h", "--"]
WORD = st.sampled_from(
    [*FLAGS, "gpt2", "bert", "depth=2", "depth=x", "dim=", "=", "0", "-1", "1e9"]
)
READING = ["show", "diff", "list", "complete", "shwo", "report", "resume", "verify", "convert"]
COMMANDS = st.tuples(
    st.sampled_from(READING), st.lists(WORD | st.text(max_size=6), max_size=5)
).map(lambda pair: [pair[0], *pair[1]])
RECORDS = st.lists(
    (st.dictionaries(st.sampled_from(["text", "label", "x"]), SCALARS, max_size=2) | VALUES)
    .map(lambda d: json.dumps(d).encode("utf-8", "surrogatepass")) | st.binary(max_size=20),
    max_size=5,
).map(b"\n".join)  # fmt: skip

TARGETS: dict[str, tuple[Callable[[Any, Path], None], Draw]] = {
    "header": (header, mutated("header") | st.binary(max_size=60)),
    "index": (index, mutated("index")),
    "config": (config, mutated("config")),
    "spec": (spec, mutated("spec")),
    "tokenizer": (tokenizer, mutated("tokenizer")),
    "lines": (lines, RECORDS),
    "records": (records, RECORDS | mutated("squad")),
    "command": (command, COMMANDS),
}
assert set(READING) - {"shwo"} <= set(VERBS)


def emptied(home: Path) -> Path:
    """A folder with nothing in it."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    return home
