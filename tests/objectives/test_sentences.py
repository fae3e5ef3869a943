"""Pairs of texts: half of them follow or are in order, others are elsewhere; masks beside them."""

from itertools import pairwise

import numpy as np
import pytest

from anyformer.errors import InputError
from anyformer.objectives.base import IGNORED
from anyformer.objectives.masked import Masked
from anyformer.objectives.sentences import NextSentence, SentenceOrder
from anyformer.recipes import recipe
from tests.objectives.samples import Documents, rng, tokenizer

PLAIN = Masked(rate=0.0)


def bound(plan, **options):
    tok = tokenizer("bert")
    return plan.bind(
        tok, plan.fit(recipe("bert", dim=16, depth=1, heads=2, vocab=len(tok), **options))
    )


def counting(documents=8, segments=30, size=5):
    """Documents whose tokens tell where they stand: document d holds 50·d + 10, 50·d + 11, …"""
    rows = [[np.arange(s, s + size) % 50 for s in range(0, segments * size, size)]] * documents
    return Documents([[50 * d + 10 + s for s in row] for d, row in enumerate(rows)])


def parts(found):
    """The two texts of a row."""
    ids, types = found["input_ids"], found["token_type_ids"]
    first = int(types.argmax())
    assert ids[0] == 2 and ids[first - 1] == ids[-1] == 3 and types[first:].all()
    return ids[1 : first - 1], ids[first:-1]


def test_half_of_the_second_texts_follow_and_the_others_are_elsewhere():
    objective, documents = bound(NextSentence(masking=PLAIN, context=40)), counting()
    labels, full = [], 0
    for i in range(3000):
        found = objective.example(documents, i, rng(0, i))
        first, second = parts(found)
        home, there = (first[0] - 10) // 50, (second[0] - 10) // 50
        label = int(found["next_sentence_label"])
        assert home == i % 8 and (there == home) == (label == 0)
        assert all((b - a) % 50 == 1 for text in (first, second) for a, b in pairwise(text))
        labels.append(label)
        full += len(found["input_ids"]) == 40
    assert np.mean(labels) == pytest.approx(0.5, abs=0.046)  # five standard errors
    assert 0.7 < full / 3000 < 1.0


def test_half_of_the_pairs_are_out_of_order():
    objective = bound(SentenceOrder(masking=PLAIN, context=200))
    documents = Documents([[np.arange(10 * s + 10, 10 * s + 17) for s in range(12)]])
    swapped = []
    for i in range(2000):
        found = objective.example(documents, i, rng(0, i))
        first, second = parts(found)
        label = int(found["sentence_order_label"])
        assert (first[0] > second[0]) == (label == 1)
        ahead, behind = (second, first) if label else (first, second)
        assert behind[0] == ahead[-1] + 4  # the next segment
        swapped.append(label)
    assert np.mean(swapped) == pytest.approx(0.5, abs=0.056)


def test_some_pairs_are_short():
    rows = lambda short: [
        len(objective.example(documents, i, rng(0, i))["input_ids"])
        for objective in [bound(SentenceOrder(masking=PLAIN, short=short, context=60))]
        for i in range(800)
    ]
    documents = Documents([[np.full(1, 9)] * 1000])
    assert np.mean(np.array(rows(0.0)) < 60) < 0.1  # documents that end
    assert np.mean(np.array(rows(0.1)) < 60) == pytest.approx(0.15, abs=0.06)


def test_masks_are_beside_the_pair_and_come_from_the_row():
    objective = bound(NextSentence(context=64))
    found = objective.example(counting(), 5, rng(0, 5))
    asked = found["labels"] != IGNORED
    assert round(0.15 * 61) - 1 <= asked.sum() <= round(0.15 * 61) + 1
    assert not asked[np.isin(found["input_ids"], (2, 3))].any()
    again = objective.example(counting(), 5, rng(0, 5))
    assert all((found[name] == again[name]).all() for name in found)


def test_documents_of_one_segment_or_none():
    documents = Documents([[np.arange(10, 400)], [], [np.array([7])], [np.array([8, 3])]])
    objective = bound(SentenceOrder(masking=PLAIN, context=32))
    for i in range(40):
        found = objective.example(documents, i, rng(0, i))
        first, second = parts(found)
        assert len(first) and len(second) and len(found["input_ids"]) <= 32
        assert 3 not in [*first, *second]  # what ended a document is no text
    with pytest.raises(InputError, match="two tokens of text"):
        objective.example(Documents([[np.array([7])], []]), 0, rng())
    alone = bound(NextSentence(other=1.0))
    with pytest.raises(InputError, match="give more documents"):
        alone.example(Documents([[np.arange(9), np.arange(9)]]), 0, rng())
    with pytest.raises(InputError, match="no other document has text"):
        alone.example(Documents([[np.arange(9), np.arange(9)], [], []]), 0, rng())


def test_what_does_not_fit_says_what_to_do():
    tok = tokenizer("bert")
    bert = recipe("bert", dim=16, depth=1, heads=2, vocab=len(tok))
    with pytest.raises(InputError, match=r"head Pretraining.*NextSentence\(…\).fit\(spec\)"):
        NextSentence().bind(tok, bert)
    with pytest.raises(InputError, match="asks='order', not 'next'"):
        SentenceOrder().bind(tok, NextSentence().fit(bert))
    with pytest.raises(InputError, match="the model has 512 positions"):
        bound(NextSentence(context=600))
    with pytest.raises(InputError, match="context is 4"):
        bound(NextSentence(context=4))
    with pytest.raises(InputError, match="no cls token"):
        NextSentence().bind(
            tokenizer("t5").with_roles(mask="<pad>"), NextSentence().fit(recipe("bert"))
        )
    assert NextSentence().fit(NextSentence().fit(bert)) == NextSentence().fit(bert)
