"""Masked tokens: rates and fates on 1M tokens, whole words, spans, special tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.objectives.base import IGNORED
from anyformer.objectives.masked import GEOMETRIC, NGRAMS, WHOLE_WORDS, Masked, masker_of
from anyformer.recipes import recipe
from tests.objectives.samples import Rows, drawn_rows, rng, text_rows, tokenizer

LENGTH, COUNT = 512, 1954  # a million tokens
PLANS = {
    "tokens": Masked(),
    "words": WHOLE_WORDS,
    "n-grams": NGRAMS,
    "spans": GEOMETRIC,
    "n-grams of tokens": Masked(spans="ngram"),
}


def small(name, tok, **options):
    return recipe(name, dim=16, depth=1, heads=2, vocab=len(tok), **options)


@pytest.mark.parametrize("name", ["tokens", "words", "n-grams", "spans"])
def test_rate_and_fates_on_a_million_tokens(name):
    tok, plan = tokenizer("bert"), PLANS[name]
    masker, rows = masker_of(plan, tok), drawn_rows(tok, LENGTH, COUNT)
    asked = masks = kept = 0
    for i, ids in enumerate(rows):
        row, labels = masker(ids, rng(0, i))
        chosen = labels != IGNORED
        assert (row[~chosen] == ids[~chosen]).all() and (labels[chosen] == ids[chosen]).all()
        asked += chosen.sum()
        masks += (row[chosen] == masker.mask).sum()
        kept += (row[chosen] == ids[chosen]).sum()
    # exact in each row but for rounding, and for the words that fit no more
    assert asked / rows.size == pytest.approx(0.15, rel=0.001 if plan.unit == "token" else 0.004)
    draws = asked / (3.8 if plan.together else 1)
    assert abs(masks / asked - 0.8) < 5 * 0.4 / draws**0.5
    same = 0.1 + 0.1 / len(masker.others)  # another token may be the same one
    assert abs(kept / asked - same) < 5 * 0.3 / draws**0.5


def test_other_tokens_are_drawn_from_all_that_are_not_special():
    tok = tokenizer("bert")
    masker = masker_of(Masked(mask=0.0, random=1.0), tok)
    found = np.concatenate(
        [masker(ids, rng(0, i))[0] for i, ids in enumerate(np.full((COUNT, LENGTH), 77))]
    )
    counts = np.bincount(found[found != 77], minlength=len(tok))
    assert not counts[masker.special].any()
    plain = np.delete(counts, [77, *np.flatnonzero(masker.special)])
    assert abs(plain / plain.mean() - 1).max() < 6 / plain.mean() ** 0.5


def test_lengths_of_ngrams_in_words_are_albert_s():
    tok = tokenizer("bert")
    masker, counts = masker_of(Masked(spans="ngram"), tok), np.zeros(4)
    for i, ids in enumerate(drawn_rows(tok, LENGTH, COUNT)):
        counts += np.bincount(masker.spans(ids, rng(0, i))[1], minlength=4)
    shares = counts[1:] / counts.sum()
    assert np.abs(shares - [6 / 11, 3 / 11, 2 / 11]).max() < 0.01  # the last of a row is cut
    assert (counts @ range(4)) / counts.sum() == pytest.approx(18 / 11, rel=0.01)


def test_lengths_of_spans_are_spanbert_s():
    tok = tokenizer("bert")
    masker = masker_of(Masked(spans="geometric", longest=10), tok)
    lengths = [
        masker.spans(ids, rng(0, i))[1] for i, ids in enumerate(drawn_rows(tok, LENGTH, COUNT))
    ]
    # the last span of a row is cut to fit, as theirs is: 76.8 tokens of 76.8 + 2.3 that are drawn
    assert np.concatenate(lengths).mean() == pytest.approx(3.8 * 76.8 / 79.1, rel=0.01)


def test_places_are_alike():
    tok = tokenizer("bert")
    for plan in (PLANS["tokens"], PLANS["n-grams"], PLANS["spans"]):
        masker, seen = masker_of(plan, tok), np.zeros(60)
        starts = np.flatnonzero(masker_of(WHOLE_WORDS, tok).marks.table)
        ids = starts[starts > 10][:60]
        for i in range(1500):
            seen += masker(ids, rng(1, i))[1] != IGNORED
        middle = seen[3:-3] / 1500  # ends of rows are in fewer spans
        assert middle == pytest.approx(0.15, abs=0.05)


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "xlm"])
@pytest.mark.parametrize("plan", [WHOLE_WORDS, NGRAMS, GEOMETRIC], ids=["one", "ngram", "span"])
def test_words_are_whole_in_every_kind_of_vocabulary(name, plan):
    tok = tokenizer(name)
    masker = masker_of(plan, tok)
    for i, ids in enumerate(text_rows(tok, 64, 20).rows):
        assert tok.decode(ids)
        chosen = masker(ids, rng(0, i))[1] != IGNORED
        word = np.cumsum(masker.marks.starts(ids))
        for number in set(word):
            assert (
                len(set(chosen[word == number])) == 1 or (masker.special[ids[word == number]]).any()
            )


def test_words_of_known_text():
    cases = {
        "bert": "the documentation",
        "roberta": " the documentation",
        "t5": "the documentation",
    }
    for name, text in cases.items():
        tok = tokenizer(name)
        ids = np.array(tok.encode(text))
        from anyformer.objectives.common import word_marks

        assert word_marks(tok).starts(ids).sum() == 2, tok.tokens(text)


def test_a_span_has_one_fate():
    tok = tokenizer("bert")
    masker = masker_of(Masked(spans="geometric", longest=10, together=True, random=0.0), tok)
    ids = np.full(200, 50)
    mixed = 0
    for i in range(50):
        row, labels = masker(ids, rng(0, i))
        edges = np.flatnonzero(np.diff(labels != IGNORED, prepend=False, append=False))
        for a, b in edges.reshape(-1, 2):
            mixed += len(set(row[a:b])) > 1
    assert mixed < 40  # neighbours alone


@given(st.lists(st.integers(0, 499), max_size=40), st.sampled_from(list(PLANS)), st.integers(0, 9))
def test_special_tokens_are_never_touched(ids, name, seed):
    masker = masker_of(PLANS[name], tokenizer("bert"))
    ids = np.array(ids, np.int64)
    row, labels = masker(ids, rng(seed))
    special = masker.special[ids]
    assert (row[special] == ids[special]).all() and (labels[special] == IGNORED).all()
    assert (labels != IGNORED).any() or special.all()
    again = masker(ids, rng(seed))
    assert (again[0] == row).all() and (again[1] == labels).all()


def test_static_masks_come_again_and_dynamic_ones_do_not():
    tok = tokenizer("bert")
    ids = drawn_rows(tok, 64, 2)
    static, dynamic = masker_of(Masked(dynamic=False), tok), masker_of(Masked(), tok)
    assert (static(ids[0], rng(0, 1))[0] == static(ids[0], rng(5, 9))[0]).all()
    assert (dynamic(ids[0], rng(0, 1))[0] != dynamic(ids[0], rng(0, 2))[0]).any()
    where = [static(row, rng())[1] != IGNORED for row in ids]
    assert (where[0] != where[1]).any()


@pytest.mark.parametrize(("name", "ends"), [("bert", (2, 3)), ("roberta", (0, 2)), ("xlm", (0, 1))])
def test_rows_have_their_special_tokens(name, ends):
    tok = tokenizer(name)
    plan = Masked()
    objective = plan.bind(tok, plan.fit(small(name, tok)))
    assert objective.length(32) == 30
    found = objective.example(text_rows(tok, 30, 1), 0, rng())
    assert len(found["input_ids"]) == 32
    assert (found["input_ids"][0], found["input_ids"][-1]) == ends
    assert found["labels"][0] == found["labels"][-1] == IGNORED


def test_documents_can_be_kept_apart():
    tok, plan = tokenizer("bert"), Masked(cross=False)
    objective = plan.bind(tok, plan.fit(small("bert", tok)))
    rows = Rows([np.arange(20, 26)] * 2, [np.array([0, 0, 1, 1, 1, 2]), np.zeros(6, np.int64)])
    found = [objective.example(rows, i, rng()) for i in range(2)]
    assert found[0]["document_ids"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert "document_ids" in objective.collate(found)
    assert "document_ids" not in objective.collate(found[1:])


@pytest.mark.parametrize(
    ("plan", "kind", "name", "message"),
    [
        (Masked(), "gpt2", "roberta", r"no mask token.*with_roles\(mask="),
        (Masked(), "bert", "gpt2", "for encoders, and this is a decoder"),
        (Masked(), "bert", "t5", "for encoders, and this is an encoder-decoder"),
        (Masked(), "bert", "bert", r"head Vocabulary, and this one has Pooler.*fit\(spec\)"),
        (Masked(mask=0.9, random=0.2), "bert", "roberta", "can't be more than 1"),
    ],
)
def test_what_does_not_fit_says_what_to_do(plan, kind, name, message):
    spec = small(name, tokenizer("roberta"))
    spec = spec if name == "bert" else plan.fit(spec)
    with pytest.raises(InputError, match=message):
        plan.bind(tokenizer(kind), spec)


def test_a_vocabulary_without_words_and_a_context_without_room(tmp_path):
    import tokenizers

    from anyformer.data.tokenizer import Tokenizer

    letters = {"[MASK]": 0, **{c: i + 1 for i, c in enumerate("abc")}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="a"))
    made.save(str(tmp_path / "tokenizer.json"))
    tok = Tokenizer.load(tmp_path).with_roles(mask="[MASK]")
    with pytest.raises(InputError, match='unit="token"'):
        masker_of(WHOLE_WORDS, tok)
    plan, bert = Masked(), tokenizer("bert")
    with pytest.raises(InputError, match="take 3 at least"):
        plan.bind(bert, plan.fit(small("bert", bert))).length(2)


def test_a_head_is_fitted_once():
    tok, plan = tokenizer("bert"), Masked()
    spec = plan.fit(small("bert", tok))
    assert isinstance(spec.head, S.Vocabulary) and spec.head.dense and spec.head.norm is not None
    assert plan.fit(spec) == spec
