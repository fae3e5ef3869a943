"""Objectives behind the loader: the same batches under any number of ranks and workers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anyformer.data.loader import Loader
from anyformer.data.rows import Rows
from anyformer.data.samples import Documents, Records, Slice
from anyformer.objectives.causal import Causal
from anyformer.objectives.masked import Masked
from anyformer.objectives.sentences import NextSentence, SentenceOrder
from anyformer.objectives.text_to_text import TextToText
from anyformer.recipes import recipe
from tests.objectives.samples import drawn_rows, tokenizer


class Shards:
    """What samples read of shards, held in memory."""

    fingerprint, segmented, documents, tokens = "shards", "line", 20, 20 * 48
    lengths = np.full(20, 48)

    def __init__(self, ids):
        self.ids = ids

    def document(self, k):
        return self.ids[k]

    def segments(self, k):
        return np.split(self.ids[k], 8)

    def names(self, k):
        return None

    def slice(self, start, stop):
        return self.ids.reshape(-1)[start:stop]


def made(plan):
    kind, family = {
        Causal: ("gpt2", "gpt2"),
        TextToText: ("t5", "t5"),
    }.get(type(plan), ("bert", "bert"))
    tok = tokenizer(kind)
    spec = recipe(family, dim=16, depth=1, heads=2, vocab=len(tok))
    objective = plan.bind(tok, plan.fit(spec))
    shards = Shards(drawn_rows(tok, 48, 20))
    texts = [{"task": "copy", "input": "the name" * i, "target": "name"} for i in range(1, 9)]
    samples = {
        "rows": lambda: Rows(shards, objective.length(16)),
        "documents": lambda: Slice(Documents(shards), 4, 16),
        "records": lambda: Records(texts),
    }[objective.reads]()
    return Loader(samples, objective, batch=8, seed=3)


PLANS = [Causal(), Masked(), NextSentence(context=24), SentenceOrder(context=24), TextToText()]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: type(plan).__name__)
def test_ranks_read_the_parts_of_one_batch(plan):
    loader = made(plan)
    for step in (0, 7):
        (whole,) = loader.step(step)
        parts = [replace(loader, world=4, rank=rank).step(step)[0] for rank in range(4)]
        for name in ("input_ids", "labels"):
            rows = [row[row != -100] for part in parts for row in part[name]]
            mine = [row[row != -100] for row in whole[name]]
            size = [min(len(a), len(b)) for a, b in zip(rows, mine, strict=True)]
            assert all(torch.equal(a[:n], b[:n]) for a, b, n in zip(rows, mine, size, strict=True))


def test_workers_make_the_same_batches():
    loader = made(NextSentence(context=24))
    alone = list(loader.steps(range(2, 5)))
    ahead = list(replace(loader, workers=2).steps(range(2, 5)))
    for one, two in zip(alone, ahead, strict=True):
        assert all(torch.equal(one[0][name], two[0][name]) for name in one[0])
