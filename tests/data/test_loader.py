"""Batches are a function of the step, whatever the ranks, workers and micro-batches."""

import numpy as np
import pytest
import torch

from anyformer.data.loader import Loader
from anyformer.data.samples import Records
from anyformer.errors import InputError


class Maker:
    """Each record's number and a draw of its own."""

    def example(self, samples, index, rng):
        return {"n": np.array(samples[index]["n"]), "draw": rng.integers(0, 1000, 3)}

    def collate(self, examples):
        return {k: torch.tensor(np.stack([e[k] for e in examples])) for k in examples[0]}


RECORDS = Records([{"n": i} for i in range(10)], seed=1)


def rows(batches):
    return [(int(n), d.tolist()) for b in batches for n, d in zip(b["n"], b["draw"], strict=True)]


def whole(steps, **options):
    loader = Loader(RECORDS, Maker(), batch=6, seed=3, **options)
    return [rows(batches) for batches in loader.steps(steps)]


def test_workers_and_micro_batches_change_nothing():
    steps = range(4)
    assert whole(steps) == whole(steps, micro=4) == whole(steps, workers=2)
    assert [len(b["n"]) for b in Loader(RECORDS, Maker(), batch=6, micro=4).step(0)] == [4, 2]


def test_ranks_share_a_step():
    ranks = [whole(range(3), rank=r, world=3) for r in range(3)]
    for step, expected in enumerate(whole(range(3))):
        assert [row for r in range(3) for row in ranks[r][step]] == expected


def test_a_step_is_the_same_wherever_a_run_begins():
    assert whole([3, 1]) == [whole(range(4))[3], whole(range(4))[1]]


def test_an_epoch_later_the_draws_differ():
    loader = Loader(RECORDS, Maker(), batch=10, seed=3)
    first, second = rows(loader.step(0)), rows(loader.step(1))
    assert sorted(n for n, _ in first) == sorted(n for n, _ in second) == list(range(10))
    assert dict(map(repr_of, first)) != dict(map(repr_of, second))


def repr_of(row):
    return row[0], str(row[1])


def test_a_batch_that_ranks_cannot_share_is_refused():
    with pytest.raises(InputError, match="multiple of 4"):
        Loader(RECORDS, Maker(), batch=6, world=4)
