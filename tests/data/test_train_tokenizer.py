"""Training tokenizers: every kind in every style, saved and read back, here and elsewhere."""

import json

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from anyformer.data.tokenizer import Tokenizer
from anyformer.data.train_tokenizer import DEFAULTS, STYLES, train
from anyformer.errors import DataError
from tests.data.vocabularies import CONTROL, LINES, ODD

TEXTS = LINES[:300]
VOCAB = {"bytes": 400, "characters": 600}
KINDS = [*DEFAULTS]


@pytest.fixture(scope="module")
def made():
    return {
        (kind, style): train(kind, TEXTS, VOCAB.get(kind, 700), style)
        for kind in KINDS
        for style in STYLES
    }


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_read_back_here_and_by_transformers(made, kind, style, tmp_path):
    ours = made[kind, style]
    ours.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert len(again) == len(ours) == len(theirs) and again.roles == ours.roles
    for text in (*ODD, "the name <mask> [MASK] of <extra_id_3> it"):
        rows = ours(text)
        assert again(text) == rows and dict(theirs(text)) == rows
        assert ours(text, "second")["input_ids"] == theirs(text, "second")["input_ids"]
        ids = rows["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    for role, token in ours.roles.items():
        assert theirs.special_tokens_map[f"{role}_token"] == token


EXACT = ["bytes", "characters", "bpe"]


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("text", [*ODD, *CONTROL, "<0x41>▁"])
def test_every_text_comes_back(made, kind, text):
    assert made[kind, "gpt"].decode(made[kind, "gpt"].encode(text)) == text


@given(st.text(max_size=40))
def test_any_text_comes_back(text):
    for kind in ("bytes", "characters"):
        assert EXACT_MADE[kind].decode(EXACT_MADE[kind].encode(text)) == text


EXACT_MADE = {"bytes": train("bytes"), "characters": train("characters", ["abc \n"])}


def test_styles_put_their_tokens_around(made):
    text, bert = "the name", made["wordpiece", "bert"]
    shown = lambda t, *given: [t.token(i) for i in t(*given)["input_ids"]]
    assert shown(bert, text)[0] == "[CLS]" and shown(bert, text, text).count("[SEP]") == 2
    assert set(bert(text, text)["token_type_ids"]) == {0, 1}
    assert shown(made["unigram", "t5"], text)[-1] == "</s>"
    pair = shown(made["bpe", "roberta"], text, text)
    assert pair[0] == "<s>" and pair.count("</s>") == 3
    assert made["bpe", "gpt"](text)["input_ids"] == made["bpe", "gpt"].encode(text)
    assert made["bpe", "roberta"].need("pad", "mask") == (1, 4)
    assert bert.role_ids == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


def test_sentinels_end_the_vocabulary_first_one_last(made):
    t5 = made["unigram", "t5"]
    assert t5.id("<extra_id_0>") == len(t5) - 1 and t5.id("<extra_id_99>") == len(t5) - 100
    assert t5.id("<extra_id_100>") is None
    few = train("bytes", vocab=300, style="t5", sentinels=7)
    assert few.id("<extra_id_6>") == len(few) - 7
    assert [few.token(i) for i in few.encode("a<extra_id_3>")] == ["a", "<extra_id_3>"]


def test_sizes_are_those_that_were_asked_for(made):
    for kind in ("bpe", "wordpiece", "unigram"):
        for style in STYLES:
            assert len(made[kind, style]) <= 700
    assert len(made["bpe", "t5"]) == 700
    assert len(made["bytes", "gpt"]) == 257
    letters = len({letter for line in TEXTS for letter in line})
    assert len(train("characters", TEXTS, fallback=False)) == letters + 2
    assert len(train("characters", TEXTS, style="plain", fallback=False)) == letters + 1


def test_bytes_are_in_order():
    ours = train("bytes", style="t5", sentinels=0)
    assert ours.encode("aé") == [3 + b for b in "aé".encode()]


def test_unknown_characters_without_fallback():
    ours = train("characters", ["abc"], fallback=False)
    assert [ours.token(i) for i in ours.encode("aX")] == ["a", "<unk>"]


def test_extra_tokens_and_case():
    ours = train("wordpiece", TEXTS, 500, extra=["<en>", "<de>"], lowercase=False)
    assert ours.tokens("<de>")[0] == "<de>" and ours.id("<en>") == 5
    assert ours.decode(ours.encode("The")) == "The"
    lower = train("bpe", TEXTS, 300, lowercase=True)
    assert lower.decode(lower.encode("THE")) == "the"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: train("bpe", [], 300), "corpus is empty"),
        (lambda: train("wordpiece", ["", " \n"], 300), "corpus is empty"),
        (lambda: train("unigram", [], 300), "corpus is empty"),
        (lambda: train("characters", [], 300), "corpus is empty"),
        (lambda: train("bpe", TEXTS, 256), "256 bytes and 1 special"),
        (lambda: train("bytes", vocab=256), "too small"),
        (lambda: train("wordpiece", TEXTS, 40), "too small"),
        (lambda: train("unigram", TEXTS, 110), "too small|trained"),
        (lambda: train("characters", TEXTS, 60), "too small"),
        (lambda: train("bep", TEXTS), "did you mean 'bpe'"),
        (lambda: train("bpe", TEXTS, style="brt"), "did you mean 'bart'|'bert'"),
        (lambda: train("bpe", TEXTS, lowercased=True), "did you mean 'lowercase'"),
    ],
)
def test_what_can_not_be_is_refused(call, said):
    with pytest.raises(DataError, match=said):
        call()


def test_the_same_texts_give_the_same_tokenizer(tmp_path):
    """Not for WordPiece: the library numbers the pieces inside words in another order each time."""
    for kind in ("bpe", "characters"):
        texts = []
        for name in ("a", "b"):
            train(kind, TEXTS, 500).save(tmp_path / name)
            texts.append(json.loads((tmp_path / name / "tokenizer.json").read_text()))
        assert texts[0] == texts[1]
