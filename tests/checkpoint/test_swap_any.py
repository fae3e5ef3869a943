"""Any drawn spec into itself and into any other: nothing is lost without a word."""

import pytest
import torch

from anyformer.checkpoint import Report, swap
from anyformer.laws.specs import sample
from anyformer.model.model import build

SEEDS = range(15)


def moved(spec, seed):
    """A model whose weights are away from their fresh values."""
    model, draws = build(spec), torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += torch.randn(parameter.shape, generator=draws)
    return model


@pytest.mark.parametrize("seed", SEEDS)
def test_into_itself(seed):
    model = moved(sample(seed), seed)
    again = swap(model, model.spec)
    assert again.report == Report(kept=tuple(model.state_dict()))
    pairs = zip(model.state_dict().values(), again.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("seed", SEEDS)
def test_into_any_other(seed):
    old = moved(sample(seed), seed)
    new = swap(old, sample(seed + 1000))
    report, before, after = new.report, old.state_dict(), new.state_dict()
    named = [*report.kept, *(key for key, _ in report.converted), *report.fresh]
    assert sorted(named) == sorted(after)
    assert all(torch.equal(before[key], after[key]) for key in report.kept)
    assert all(how for _, how in report.converted) and set(report.dropped) <= set(before)
    assert not any(parameter.is_meta for parameter in new.parameters())
    assert not any(buffer.is_meta for buffer in new.buffers())
    again = swap(new, new.spec)
    assert again.report == Report(kept=tuple(after))
