"""One step of training, its loss and gradients looked at."""

import torch

from anyformer import build
from anyformer.objectives.base import Trainee
from tests.objectives.samples import rng


def batch_of(objective, samples, rows=3):
    """The first rows as a batch."""
    return objective.collate([objective.example(samples, i, rng(0, i)) for i in range(rows)])


def trainee_of(objective, spec, seed=0):
    """A fresh model with what the objective has beside it."""
    torch.manual_seed(seed)
    return Trainee(build(spec), objective)


def loss_of(trainee, batch):
    """The loss and the result of a batch: Σ weight · sum / count."""
    objective, result = trainee.objective, trainee(batch)
    counts = objective.counts(batch)
    assert set(counts) == set(result.losses) == set(objective.weights)
    for total, count in result.metrics.values():
        assert 0 <= float(total) and float(count) >= 0
    return sum(objective.weights[k] * v / counts[k] for k, v in result.losses.items()), result


def check_step(trainee, batch, without=()):
    """Finite gradients in every parameter but those of some names; returns the result."""
    loss, result = loss_of(trainee, batch)
    loss.backward()
    missing = []
    for name, weight in trainee.named_parameters():
        if weight.grad is None:
            missing.append(name)
        else:
            assert torch.isfinite(weight.grad).all(), name
    assert [name for name in missing if not any(part in name for part in without)] == []
    return result


def learns(trainee, batch, steps=10, lr=3e-3):
    """The loss of one batch before and after some steps on it."""
    optimiser = torch.optim.Adam(trainee.parameters(), lr=lr)
    losses = []
    for step in range(steps):
        torch.manual_seed(step)
        loss, _ = loss_of(trainee, batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses[0], losses[-1]


def finetuned(task, spec, records, steps=25, lr=5e-3):
    """A model after some steps on all records at once."""
    trainee = trainee_of(task, spec)
    first, last = learns(trainee, batch_of(task, records, len(records)), steps, lr)
    assert last < first
    return trainee.model
