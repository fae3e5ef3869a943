"""Losses and metrics over samples that are not trained on, exact under any number of ranks."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from anyformer.data.order import late
from anyformer.data.samples import Samples
from anyformer.errors import InputError
from anyformer.objectives.base import Batch, Objective, Result, Trainee
from anyformer.train.ranks import Spread, alone, seed
from anyformer.train.reader import reader
from anyformer.train.settings import Settings
from anyformer.train.step import DTYPES, Sums, Told

SEED = 0x5EED  # of the rows, which are the same each time


def evaluate(
    trainee: Trainee | Spread,
    samples: Samples,
    settings: Settings = Settings(),
    device: torch.device | str | None = None,
) -> dict[str, float]:
    """The loss, each of its terms and each metric over the first samples of an epoch.

    Rows are drawn from one seed whatever the step, so that two evaluations compare. Adds the
    perplexity where there is one term. Rows and micro-batch come from the settings.
    """
    spread = alone(trainee) if isinstance(trainee, Trainee) else trainee
    count = min(settings.evaluation.rows or samples.size, samples.size)
    if count < 1:
        raise InputError("there are no samples to evaluate on: give at least one")
    where = torch.device(device) if device is not None else _device(spread)
    kept = torch.get_rng_state()
    modes = {m: m.training for m in spread.module.modules()}
    spread.module.eval()
    spread.trainee.metrics = True
    try:
        seed(where, SEED, spread.rank)
        with torch.no_grad(), _autocast(settings, where):
            told = _sums(spread, samples, count, settings, where)
    finally:
        for module, mode in modes.items():
            module.training = mode
        torch.set_rng_state(kept)
    if len(spread.trainee.objective.weights) == 1:
        told["perplexity"] = math.exp(min(told["loss"], 700.0))
    return told


def _sums(
    spread: Spread, samples: Samples, count: int, settings: Settings, device: torch.device
) -> dict[str, float]:
    objective = spread.trainee.objective
    weights = dict(objective.weights)
    sums, total = Sums(weights), [0.0] * len(weights)
    micro = settings.micro or max(settings.batch // spread.world, 1)
    rows, module = range(spread.rank, count, spread.world), reader(spread, device)
    most = -(-count // spread.world)  # rows of the rank that has most: all ranks go equally often
    for at in range(0, most, micro):
        mine = rows[at : at + micro]
        batch = _batch(objective, samples, mine or range(1))
        found = _read(spread, module, {k: v.to(device) for k, v in batch.items()})
        if mine:
            sums.add(*found)
            counts = objective.counts(batch)
            total = [t + float(counts[n]) for t, n in zip(total, weights, strict=True)]
        elif not sums.losses:  # fewer rows than ranks: the names are needed, not the numbers
            sums.add(*found)
            sums.losses = {k: torch.zeros_like(v) for k, v in sums.losses.items()}
            nothing = lambda pair: (torch.zeros_like(pair[0]), torch.zeros_like(pair[1]))
            sums.metrics = {k: nothing(v) for k, v in sums.metrics.items()}
    whole = spread.sum(torch.tensor(total, dtype=torch.float64, device=device))
    return Told(sums, (), sums.values(spread, whole)).read()


def _read(spread: Spread, module: nn.Module, batch: Batch) -> list[Result]:
    """What the pieces of a batch give, read in turn."""
    found: list[Result] = []
    for piece in spread.trainee.objective.pieces(batch):
        found.append(module({**piece, **(found[-1].carry if found else {})}))
    return found


def _batch(objective: Objective, samples: Samples, rows: range) -> Batch:
    return objective.collate([objective.example(samples, i, late(SEED, i)) for i in rows])


def _device(spread: Spread) -> torch.device:
    first: Tensor = next(spread.trainee.parameters())
    return first.device


def _autocast(settings: Settings, device: torch.device) -> Any:
    dtype = DTYPES.get(settings.precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def bits_per_byte(loss: float, tokens: int, size: int) -> float:
    """A loss per token in nats as bits per byte of the text, which has so many tokens and bytes."""
    if tokens < 1 or size < 1:
        raise InputError(f"tokens={tokens} and size={size} should be at least 1")
    return loss * tokens / size / math.log(2)
