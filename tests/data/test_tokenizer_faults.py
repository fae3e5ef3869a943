"""Folders that can't be read as a tokenizer: each error names the file and says what to do."""

import json
import time

import pytest

from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import CheckpointError, InputError
from tests.data import vocabularies as V

VOCAB = V.wordpiece()["vocab.txt"]
LEVEL = {"type": "WordLevel", "vocab": {"[U]": 0, "a": 1}, "unk_token": "[U]"}
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {},
}


def tokenizer_json(model: dict, **fields: object) -> dict[str, str]:
    return {"tokenizer.json": json.dumps({"version": "1.0", "model": model, **fields})}


OLDER = {
    "nothing": ({}, "bert", r"no tokenizer: none of tokenizer\.json.*vocab\.txt"),
    "no family": ({"vocab.txt": VOCAB}, None, r"vocab\.txt.*tokenizer_class.*kind="),
    "files of another": ({"vocab.txt": VOCAB}, "t5", r"vocab\.txt.*spiece\.model"),
    "merges missing": ({"vocab.json": "{}"}, "gpt2", r"vocab\.json with merges\.txt"),
    "empty": ({"vocab.txt": ""}, "bert", r"vocab\.txt is no vocabulary"),
    "not UTF-8": ({"vocab.txt": b"\xff\xfe[PAD]\n"}, "bert", r"vocab\.txt is not UTF-8"),
    "not JSON": ({"vocab.json": "{", "merges.txt": ""}, "gpt2", r"vocab\.json is not valid JSON"),
    "a list": ({"vocab.json": "[]", "merges.txt": ""}, "gpt2", r"vocab\.json holds a list"),
    "ids": ({"vocab.json": '{"a": 0, "b": 0}', "merges.txt": ""}, "gpt2", r"vocab\.json.*1 diff"),
    "far ids": ({"vocab.json": '{"a": 4294967295}', "merges.txt": ""}, "gpt2", "0 different"),
    "text ids": ({"vocab.json": '{"a": "0"}', "merges.txt": ""}, "gpt2", "no vocabulary"),
    "no pair": ({"vocab.json": '{"a": 0}', "merges.txt": "#version\na\n"}, "gpt2", "line 2: 'a'"),
    "merge": ({"vocab.json": '{"a": 0}', "merges.txt": "a b\n"}, "gpt2", r"merges\.txt can't"),
    "no [SEP]": ({"vocab.txt": "[UNK]\n[CLS]\na\n"}, "bert", r"lacks '\[SEP\]'.*sep_token"),
    "no [UNK]": ({"vocab.txt": "[SEP]\n[CLS]\na\n"}, "bert", r"lacks '\[UNK\]', the unk token"),
}  # fmt: skip
MADE = {
    "no model": (json.dumps({"version": "1.0"}), "can't be read"),
    "not JSON": ("<html>", "not valid JSON"),
    "deep": ("[" * 100_000, "not valid JSON"),
    "kind": (tokenizer_json({"type": "Nonsense"}), "can't be read"),
    "merge overrun": (
        tokenizer_json({**BPE, "merges": ["a b"], "continuing_subword_prefix": "####"}),
        "can't be read",
    ),
    "template": (tokenizer_json(LEVEL, post_processor=TEMPLATE), "can't be read"),
    "bad charsmap": (
        tokenizer_json(LEVEL, normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "can't be read",
    ),
    "one id twice": (tokenizer_json({**LEVEL, "vocab": {"[U]": 0, "a": 0}}), "one id to several"),
    "long words": (
        tokenizer_json(
            {
                "type": "WordPiece",
                "vocab": {"[U]": 0},
                "unk_token": "[U]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 20_000,
            }
        ),
        "max_input_chars_per_word 20000",
    ),
}


@pytest.mark.parametrize(("files", "model", "said"), OLDER.values(), ids=OLDER.keys())
def test_older_files(tmp_path, files, model, said):
    V.folder(tmp_path, files, {}, {"model_type": model} if model else {})
    with pytest.raises(CheckpointError, match=said):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(("content", "said"), MADE.values(), ids=MADE.keys())
def test_tokenizer_json(tmp_path, content, said):
    V.folder(
        tmp_path, content if isinstance(content, dict) else {"tokenizer.json": content}, {}, {}
    )
    with pytest.raises(CheckpointError, match=f"tokenizer.json.*{said}"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("section", ["truncation", "padding"])
def test_settings_that_would_panic_are_not_used(tmp_path, section):
    harmful = {
        "truncation": {
            "direction": "Right",
            "max_length": 2,
            "strategy": "LongestFirst",
            "stride": 9,
        },
        "padding": {"strategy": {"Fixed": 0}, "pad_to_multiple_of": 0},
    }
    V.folder(tmp_path, tokenizer_json(LEVEL, **{section: harmful[section]}), {}, {})
    assert Tokenizer.load(tmp_path)("a")["input_ids"] == [1]


def test_a_pattern_without_end_is_an_error(tmp_path):
    split = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    V.folder(tmp_path, tokenizer_json(LEVEL, pre_tokenizer=split), {}, {})
    ours, before = Tokenizer.load(tmp_path), time.monotonic()
    with pytest.raises(InputError, match="can't be encoded"):
        ours("a" * 60 + "!")
    assert time.monotonic() - before < 20


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"vocab_size": 499}, r"500 tokens.*vocab_size 499"),
        ({"vocab_size": 30522}, r"500 tokens.*vocab_size 30522.*check=False"),
        ({"text_config": {"vocab_size": 12}}, "vocab_size 12"),
        ({"n_words": 12}, "vocab_size 12"),
    ],
)
def test_a_vocabulary_of_another_model_is_refused(tmp_path, about, said):
    V.folder(tmp_path, V.wordpiece(), {}, {"model_type": "bert", **about})
    with pytest.raises(CheckpointError, match=said):
        Tokenizer.load(tmp_path)
    assert len(Tokenizer.load(tmp_path, check=False)) == 500


@pytest.mark.parametrize("rows", [500, 512, 700])
def test_rows_beyond_the_vocabulary_are_common(tmp_path, rows):
    V.folder(tmp_path, V.wordpiece(), {}, {"model_type": "bert", "vocab_size": rows})
    assert len(Tokenizer.load(tmp_path)) == 500


def test_other_refusals(tmp_path):
    with pytest.raises(CheckpointError, match="is no folder"):
        Tokenizer.load(tmp_path / "absent")
    V.folder(tmp_path, V.wordpiece(), {"do_basic_tokenize": False}, {"model_type": "bert"})
    with pytest.raises(CheckpointError, match="do_basic_tokenize=False"):
        Tokenizer.load(tmp_path)
    with pytest.raises(CheckpointError, match="did you mean 'distilbert'"):
        Tokenizer.load(tmp_path, kind="distilbrt")
    V.folder(tmp_path, V.wordpiece(), {"mask_token": 5}, {"model_type": "bert"})
    with pytest.raises(CheckpointError, match="5 is no token"):
        Tokenizer.load(tmp_path)


def test_a_long_text_without_spaces_takes_linear_time(tmp_path):
    V.folder(tmp_path, V.wordpiece(), {}, {"model_type": "bert"})
    ours, before = Tokenizer.load(tmp_path), time.monotonic()
    assert ours("a" * 100_000)["input_ids"] == [2, 1, 3]
    assert time.monotonic() - before < 5
