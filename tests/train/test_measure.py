"""Evaluation is exact, repeats itself and leaves no trace."""

import math

import pytest
import torch

from anyformer.errors import InputError
from anyformer.model.model import build
from anyformer.objectives.base import Trainee
from anyformer.train import bits_per_byte, evaluate
from anyformer.train.settings import Evaluation
from tests.train.tiny import Bound, Numbers, settings, spec


class One(Bound):
    """One term only."""

    def __init__(self):
        super().__init__()
        self.weights = {"next": 1.0}


def _trainee(objective=None) -> Trainee:
    return Trainee(build(spec()), objective or Bound()).train()


@pytest.mark.parametrize("micro", [1, 3, 7])
def test_how_rows_are_cut_changes_nothing(micro):
    trainee, samples = _trainee(), Numbers(7, ragged=True)
    whole = evaluate(trainee, samples, settings(batch=8))
    found = evaluate(trainee, samples, settings(batch=8, micro=micro))
    assert whole.keys() == found.keys()
    assert all(found[k] == pytest.approx(whole[k], rel=1e-6) for k in whole)


def test_the_mean_is_over_tokens():
    trainee, samples = _trainee(), Numbers(5, ragged=True)
    told = evaluate(trainee, samples, settings())
    trainee.eval()
    total = count = 0.0
    for i in range(5):
        batch = trainee.objective.collate([trainee.objective.example(samples, i, _Dice())])
        with torch.no_grad():
            total += float(trainee(batch).losses["next"])
        count += float(trainee.objective.counts(batch)["next"])
    assert told["loss/next"] == pytest.approx(total / count, rel=1e-6)


class _Dice:
    def random(self, n):
        return torch.ones(n).numpy()

    def integers(self, low, high, n):
        return torch.zeros(n).numpy()


def test_it_leaves_modes_and_random_numbers_alone():
    trainee = _trainee()
    trainee.model.head.eval()
    modes, state = [m.training for m in trainee.modules()], torch.get_rng_state()
    first = evaluate(trainee, Numbers(6), settings())
    assert [m.training for m in trainee.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert evaluate(trainee, Numbers(6), settings()) == first


def test_rows_and_perplexity():
    given = settings(evaluation=Evaluation(rows=2))
    few = evaluate(_trainee(One()), Numbers(6), given)
    assert few["perplexity"] == pytest.approx(math.exp(few["loss"]))
    assert few["loss"] == few["loss/next"]
    with pytest.raises(InputError, match="no samples"):
        evaluate(_trainee(), Numbers(0), settings())


def test_bits_per_byte():
    assert bits_per_byte(math.log(2), 8, 4) == pytest.approx(2.0)
    with pytest.raises(InputError):
        bits_per_byte(1.0, 0, 4)
