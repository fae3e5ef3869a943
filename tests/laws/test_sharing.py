"""Laws that share a spec's model try what each would have tried alone, and miss nothing by it."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from anyformer.laws import cases
from anyformer.laws.backends import preferring
from anyformer.laws.broken import BrokenError, finite_each, same_each
from anyformer.laws.cases import case, sharing
from anyformer.laws.counts import Flops
from anyformer.laws.many import Tally, try_laws
from anyformer.laws.specs import sample
from anyformer.laws.table import LAWS


def built(monkeypatch) -> list[object]:
    """A list that grows by one for each model that is drawn."""
    drawn, found = cases._drawn, []
    noted = lambda spec, seed: found.append(spec) or drawn(spec, seed)
    monkeypatch.setattr(cases, "_drawn", noted)
    return found


@pytest.mark.parametrize("seed", range(2))
def test_shared_models_and_rows_are_those_of_a_law_alone(seed, monkeypatch):
    spec, models = sample(seed), built(monkeypatch)
    alone = case(spec, seed)
    with sharing():
        case(spec, seed).model.train()
        torch.rand(3)
        again = case(spec, seed)
    assert len(models) == 2 and not again.model.training
    assert torch.equal(again.main.x, alone.main.x) and again.rng.random() == alone.rng.random()
    weights = alone.model.state_dict()
    assert all(torch.equal(w, weights[name]) for name, w in again.model.state_dict().items())


def test_laws_of_one_spec_build_once_and_of_another_anew(monkeypatch):
    models = built(monkeypatch)
    names = ["8 one position", "9 parameters", "9 flops", "7 folder"]
    tally = try_laws(names, range(4, 6))
    assert not tally.found and sum(tally.tried.values()) == 8
    assert len(models) == 2
    LAWS["9 parameters"].check(sample(4), 4)  # alone, as by `broken`, nothing is shared
    assert len(models) == 3


@pytest.mark.parametrize("seed", range(6))
def test_flops_are_those_of_torch(seed):
    c = case(sample(seed), seed)
    totals = []
    for counter in (FlopCounterMode(display=False), Flops()):
        with torch.no_grad(), preferring("eager"), counter:
            c()
        plain = isinstance(counter, Flops)
        totals.append(counter.total if plain else counter.get_total_flops())
    assert totals[0] == totals[1] > 0


@pytest.mark.parametrize("wrong", [1.0, float("nan"), float("inf")])
def test_one_wrong_number_among_many_tensors_is_named(wrong):
    right = {name: torch.zeros(3).double() for name in "abc"}
    same_each(right, right, "{}")
    finite_each(right, "{}")
    other = {**right, "b": torch.tensor([0.0, wrong, 0.0]).double()}
    with pytest.raises(BrokenError, match="gradient of b"):
        same_each(other, right, "gradient of {}")
    if wrong != 1.0:
        with pytest.raises(BrokenError, match="gradients of b"):
            finite_each(other, "gradients of {}")


def test_a_tally_says_how_many_of_each_sort():
    tally = Tally()
    for seed in (0, 3):
        tally.add(try_laws(["9 parameters"], [seed]))
    assert tally.specs.total() == 2 and tally.specs["drawn"] == 1
    assert tally.table(["9 parameters"])[-1].startswith("2 specs (1 drawn, ")
    assert "2 tries of 1 laws" in tally.table(["9 parameters"])[-1]
