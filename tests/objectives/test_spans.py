"""T5's span corruption: lengths, sentinels, and rows that can be rebuilt."""

import numpy as np
import pytest

from anyformer.errors import InputError
from anyformer.objectives.spans import SpanCorruption
from anyformer.recipes import recipe
from tests.objectives.samples import Rows, drawn_rows, rng, tokenizer


def small(name="t5", **options):
    return recipe(name, dim=16, depth=1, heads=2, vocab=520, **options)


def test_rows_fill_the_context_as_in_the_paper():
    objective = SpanCorruption().bind(tokenizer("t5"), small())
    assert objective.length(512) == 568 and objective.lengths(568) == (512, 114)
    for context in (3, 7, 64, 100):
        tokens = objective.length(context)
        assert objective.lengths(tokens)[0] <= context < objective.lengths(tokens + 1)[0]


def test_an_example_rebuilds_its_row():
    tok = tokenizer("t5")
    objective = SpanCorruption().bind(tok, small())
    first = [tok.id(f"<extra_id_{i}>") for i in range(100)]
    assert (np.diff(first) == -1).all()
    rows = Rows(list(drawn_rows(tok, 568, 40)))
    rows = Rows([np.where(np.isin(row, first), 5, row) for row in rows.rows])
    for i in range(40):
        found = objective.example(rows, i, rng(0, i))
        source, labels = found["input_ids"], found["labels"]
        assert len(source) == 512 and len(labels) == 114 and source[-1] == labels[-1] == 1
        assert found["decoder_input_ids"].tolist() == [0, *labels[:-1]]
        marks = [id for id in source if id in first]
        assert marks == first[:28] and [id for id in labels if id in first] == marks
        parts = np.split(labels[:-1], np.flatnonzero(np.isin(labels[:-1], first)))[1:]
        taken = {int(part[0]): part[1:] for part in parts}
        rebuilt = np.concatenate([taken.get(int(id), [id]) for id in source[:-1]])
        assert (rebuilt == rows[i]["ids"]).all()
    again = objective.example(rows, 3, rng(0, 3))
    assert (again["labels"] == objective.example(rows, 3, rng(0, 3))["labels"]).all()
    assert (again["labels"] != objective.example(rows, 3, rng(1, 3))["labels"]).any()


def test_what_does_not_fit_says_what_to_do():
    tok, plan = tokenizer("t5"), SpanCorruption()
    objective = plan.bind(tok, small())
    with pytest.raises(InputError, match="100 sentinels: take a shorter context"):
        objective.length(4096)
    with pytest.raises(InputError, match="3 at least"):
        objective.length(2)
    with pytest.raises(InputError, match="leaves nothing to read"):
        SpanCorruption(rate=1.0, mean=1e9).bind(tok, small()).length(50)
    with pytest.raises(InputError, match="one token"):
        objective.example(Rows([np.array([4])]), 0, rng())
    with pytest.raises(InputError, match="sentinel '<x0>': add such tokens"):
        SpanCorruption(sentinel="<x{}>").bind(tok, small())
    with pytest.raises(InputError, match="one token at least"):
        SpanCorruption(mean=0.5).bind(tok, small())
    with pytest.raises(InputError, match="for encoder-decoders, and this model has one stack"):
        plan.bind(tok, small("gpt2"))
    with pytest.raises(InputError, match="no eos token"):
        plan.bind(tokenizer("bert"), small())
