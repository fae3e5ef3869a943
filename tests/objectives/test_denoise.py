"""BART's noise: rates on 1M tokens, masks for spans, sentences, and the original as the target."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyformer.errors import InputError
from anyformer.objectives.denoise import Denoising
from anyformer.recipes import recipe
from tests.objectives.samples import Rows, drawn_rows, rng, text_rows, tokenizer

MASK = 4
NONE = {"infill": 0.0, "permute": 0.0}


def bound(**options):
    tok = tokenizer("bart")
    return Denoising(**options).bind(tok, recipe("bart", dim=16, depth=1, heads=2, vocab=len(tok)))


def test_infilling_on_a_million_tokens():
    objective = bound(permute=0.0)
    rows = Rows(list(drawn_rows(tokenizer("bart"), 512, 1954)))
    masks = gone = 0
    for i in range(rows.size):
        found = objective.example(rows, i, rng(0, i))["input_ids"][1:-1]
        masks += (found == MASK).sum()
        gone += 512 - (found != MASK).sum()
    assert gone / (1954 * 512) == pytest.approx(0.3, rel=0.001)
    # Poisson(3) spans, the last of a row cut to fit: 153.6 tokens of 153.6 + 1.5 that are drawn
    assert gone / masks == pytest.approx(3.0 * 153.6 / 155.1, rel=0.01)


@pytest.mark.parametrize(("option", "rate"), [("mask", 0.15), ("delete", 0.1)])
def test_masking_and_deletion(option, rate):
    objective = bound(**NONE, **{option: rate})
    rows = Rows(list(drawn_rows(tokenizer("bart"), 512, 300)))
    found = [objective.example(rows, i, rng(0, i))["input_ids"][1:-1] for i in range(rows.size)]
    kept = sum(int((row != MASK).sum()) for row in found)
    assert 1 - kept / (300 * 512) == pytest.approx(rate, rel=0.01)
    assert all(len(row) == 512 for row in found) == (option == "mask")


def test_sentences_are_shuffled_inside_their_documents():
    tok, objective = tokenizer("bart"), bound(infill=0.0)
    texts = ["one is here. two is there! three is it?", " four is more. five is less."]
    parts = [np.array(tok.encode(text)) for text in texts]
    ids = np.concatenate(parts)
    documents = np.repeat([0, 1], [len(part) for part in parts])
    seen = set()
    for i in range(200):
        found = objective.example(Rows([ids], [documents]), 0, rng(0, i))
        assert found["labels"].tolist() == [0, *ids, 2]
        text = tok.decode(found["input_ids"][1:-1])
        assert sorted(found["input_ids"]) == sorted(found["labels"])
        assert max(text.find(w) for w in ("one", "two", "three")) < text.find("four is")
        seen.add(text)
    assert len(seen) == 12
    assert (
        bound(**NONE).example(Rows([ids], [documents]), 0, rng())["input_ids"] == [0, *ids, 2]
    ).all()


def test_rotation_begins_at_any_token():
    objective = bound(**NONE, rotate=1.0)
    ids = np.arange(20, 30)
    found = [objective.example(Rows([ids]), 0, rng(0, i))["input_ids"][1:-1] for i in range(200)]
    assert {int(row[0]) for row in found} == set(ids)
    assert all(sorted(row) == list(ids) for row in found)


@given(st.lists(st.integers(0, 599), max_size=40), st.booleans(), st.integers(0, 50))
def test_special_tokens_stay_and_rows_never_grow(ids, words, seed):
    objective = bound(permute=0.0, whole_words=words)
    ids = np.array(ids, np.int64)
    found = objective.example(Rows([ids]), 0, rng(seed))
    row, special = found["input_ids"], objective.noise.special
    assert len(row) <= len(found["labels"])
    keep = lambda x: [id for id in x if special[id] and id != MASK]
    assert keep(row) == keep(found["labels"])
    again = objective.example(Rows([ids]), 0, rng(seed))
    assert all((again[name] == found[name]).all() for name in found)


def test_the_decoder_reads_the_target_behind_its_start():
    found = bound().example(text_rows(tokenizer("bart"), 30, 1), 0, rng())
    assert found["decoder_input_ids"].tolist() == [2, *found["labels"][:-1]]
    assert found["labels"][0] == 0 and found["labels"][-1] == 2 and bound().length(32) == 30


def test_what_does_not_fit_says_what_to_do():
    small = lambda name: recipe(name, dim=16, depth=1, heads=2, vocab=700)
    with pytest.raises(InputError, match="no mask token"):
        Denoising().bind(tokenizer("gpt2"), small("bart"))
    with pytest.raises(InputError, match="one stack"):
        Denoising().bind(tokenizer("bart"), small("gpt2"))
    with pytest.raises(InputError, match="no room"):
        bound().length(2)
    with pytest.raises(InputError, match="with_roles"):
        Denoising(**NONE, delete=0.1).bind(tokenizer("ctrl"), small("bart"))
