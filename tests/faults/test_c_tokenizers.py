"""Group C: tokenizers that break, that don't go with their model, and texts made to break them."""

import json
import time

import pytest

import anyformer
from anyformer.data.tokenizer import Tokenizer
from anyformer.data.train_tokenizer import train as train_tokenizer
from anyformer.errors import CheckpointError, DataError, InputError
from tests.data.test_tokenizer_faults import BPE, LEVEL, TEMPLATE, tokenizer_json
from tests.faults.helping import assert_kept, assert_refused, edited, folder, words

OPTIONS = ["dim=8", "depth=1", "heads=2", "--steps", "1", "--batch", "2", "--length", "8"]
PANICS = {
    "merge overrun": tokenizer_json({**BPE, "continuing_subword_prefix": "####"}),
    "template": tokenizer_json(LEVEL, post_processor=TEMPLATE),
    "charsmap": tokenizer_json(
        LEVEL, normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    ),
}
HARMLESS = {
    "stride": {"truncation": {"direction": "Right", "max_length": 2, "stride": 9}},
    "fixed length": {"padding": {"strategy": {"Fixed": 0}, "pad_to_multiple_of": 0}},
}
SPLIT = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}


def put(home, files):
    home.mkdir(exist_ok=True)
    for name, text in files.items():
        (home / name).write_text(text)
    return home


@pytest.mark.parametrize("name", PANICS)
def test_c32_files_that_make_the_library_panic(tmp_path, command, name):
    home = put(tmp_path / "t", PANICS[name])
    with (
        assert_kept(home),
        assert_refused("tokenizer.json", "can't be read", error=CheckpointError),
    ):
        Tokenizer.load(home)
    command.assert_fails(["tokenizer", "show", "t", "a b"], "tokenizer.json")


@pytest.mark.parametrize("name", HARMLESS)
def test_c32_settings_that_would_make_it_panic_are_not_used(tmp_path, name):
    home = put(tmp_path / "t", tokenizer_json(LEVEL, **HARMLESS[name]))
    assert Tokenizer.load(home)("a")["input_ids"] == [1]


@pytest.mark.parametrize(
    ("vocab", "says"),
    [({"a": 0, "b": 0}, "different ids"), ({"a": 2**32 - 1}, "different ids"), ({"a": -1}, "ids")],
)
def test_c33_ids_twice_or_far_away(tmp_path, vocab, says):
    home = put(tmp_path / "t", {"vocab.json": json.dumps(vocab), "merges.txt": ""})
    with assert_kept(home), assert_refused("vocab.json", says, error=CheckpointError):
        Tokenizer.load(home, kind="gpt2")


def test_c33_ids_with_gaps_beyond_the_model(tmp_path):
    far = tokenizer_json({**LEVEL, "vocab": {"[U]": 0, "a": 5000}})
    home = put(tmp_path / "t", far | {"config.json": '{"vocab_size": 100}'})
    with assert_kept(home), assert_refused("5001 tokens", "vocab_size 100", error=CheckpointError):
        Tokenizer.load(home)


@pytest.mark.parametrize(("recipe", "says"), [("bert", "cls token"), ("t5", "<extra_id_0>")])
def test_c34_special_tokens_that_an_objective_needs(writer, tmp_path, command, recipe, says):
    (tmp_path / "text.txt").write_text("some words in a text. " * 40)
    told = ["--data", "text.txt", "--tokenizer", "writer", "--out", "run"]
    command.assert_fails(["train", recipe, *OPTIONS, *told], says)


def test_c35_a_vocabulary_of_another_size(tmp_path, command):
    home = folder(tmp_path / "m", "anyformer")
    words().save(home)
    (tmp_path / "text.txt").write_text("some words in a text. " * 40)
    both = ("has 257 tokens", "31")
    command.assert_fails(["generate", "m", "hello"], *both)
    command.assert_fails(["evaluate", "m", "--data", "text.txt"], *both)
    theirs = folder(tmp_path / "t")
    words().save(theirs)
    command.assert_fails(["generate", "t", "hello"], *both)
    told = ["--data", "text.txt", "--tokenizer", "bytes", "--out", "run"]
    command.assert_fails(["train", "gpt2", "vocab=20", *OPTIONS, *told], "257 tokens", "20")


TEXTS = {
    "one word": "a" * 100_000,
    "without spaces": "ab" * 200_000,
    "NUL": "a\0b",
    "combining marks": "a" + "\u0301" * 50_000,
    "right to left": "\u202eabc \u05d0\u05d1",
    "joined emoji": "👩‍👩‍👧‍👦 🏳️‍🌈",
}


@pytest.mark.parametrize("name", TEXTS)
def test_c36_texts_made_to_break_it(name):
    before = time.monotonic()
    assert words().decode(words().encode(TEXTS[name])) == TEXTS[name]
    assert time.monotonic() - before < 5


def test_c36_half_of_a_surrogate_pair():
    with assert_refused("text 1", "half of a pair of surrogates at 1", error=InputError):
        words()(["fine", "a\ud800b"])


@pytest.mark.parametrize("kind", ["bytes", "bpe", "wordpiece"])
def test_c36_time_is_linear_in_length(kind):
    made = words() if kind == "bytes" else train_tokenizer(kind, ["ab ba abba " * 9], 400)
    spent = {}
    for size in (50_000, 200_000):
        text, runs = "ab" * (size // 2), []
        for _ in range(3):
            before = time.perf_counter()
            made.encode(text)
            runs.append(time.perf_counter() - before)
        spent[size] = min(runs)
    assert spent[200_000] < 4 * 2 * spent[50_000] + 0.05, spent


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "characters"])
def test_c37_an_empty_corpus_or_a_vocabulary_too_small(tmp_path, command, kind):
    for corpus in ([], [""]):
        with assert_refused("the corpus is empty", error=DataError):
            train_tokenizer(kind, corpus, 300)
    with assert_refused("is too small", error=DataError):
        train_tokenizer(kind, ["abcdefghijklmnopqrstuvwxyz"], 7)
    (tmp_path / "e.txt").write_text("")
    command.assert_fails(["tokenizer", "train", kind, "--data", "e.txt", "--out", "t"], "is empty")
    (tmp_path / "e.txt").write_text("abcdefghijklmnopqrstuvwxyz")
    small = ["--data", "e.txt", "--vocab", "7", "--out", "t"]
    command.assert_fails(["tokenizer", "train", kind, *small], "vocab=7 is too small")


def test_c38_a_pattern_without_end(tmp_path):
    home = put(tmp_path / "t", tokenizer_json(LEVEL, pre_tokenizer=SPLIT))
    made = Tokenizer.load(home)
    with assert_refused("can't be encoded", error=InputError, remedy=False):
        made("a" * 60 + "!")


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% for i in range(10**12) %}x{% endfor %}",
        "{{ 'x' * 10**10 }}",
        "{{ cycler.__init__.__globals__.os.system('touch MARKER') }}",
    ],
)
def test_c39_hostile_templates_of_chats(writer, command, marker, template):
    """No template is ever rendered: a chat is the texts themselves."""
    text = template.replace("MARKER", str(marker))
    (writer / "chat_template.jinja").write_text(text)
    if (writer / "tokenizer_config.json").is_file():
        edited(writer / "tokenizer_config.json", chat_template=text)
    else:
        (writer / "tokenizer_config.json").write_text(json.dumps({"chat_template": text}))
    before = time.monotonic()
    code, out, err = command.ends(["generate", writer, "hi", "--max-new-tokens", "2"])
    assert code == 0, err
    assert "__class__" not in out
    assert anyformer.load(writer).spec.dim == 8
    assert time.monotonic() - before < 5
