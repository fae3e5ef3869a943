"""A tiny language, a tiny objective and a tiny decoder to train on them, in milliseconds."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch

from anyformer.objectives.base import Batch, Objective, Result, Trainee, inputs
from anyformer.objectives.losses import token_sum
from anyformer.recipes import recipe
from anyformer.spec.node import node
from anyformer.train.settings import Saving, Settings

VOCAB, LENGTH = 23, 12


class Numbers:
    """Rows that count upwards from a start, with a step of their own; some noise."""

    def __init__(self, size: int = 64, seed: int = 0, ragged: bool = False):
        self.size, self.seed, self.ragged = size, seed, ragged

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.size} {self.seed} {self.ragged}".encode()).hexdigest()

    def __getitem__(self, index: int) -> dict[str, Any]:
        dice = np.random.default_rng([self.seed, index % self.size])
        length = LENGTH + 1 - (int(dice.integers(0, 6)) if self.ragged else 0)
        start, pace = dice.integers(0, VOCAB), dice.integers(1, 4)
        return {"ids": (start + pace * np.arange(length)) % VOCAB}


class Bound(Objective):
    """Next token, and beside it a term for the first half alone, so that there are two."""

    def __init__(self, noise: float = 0.0):
        self.weights = {"next": 1.0, "early": 0.5}
        self.noise = noise

    def example(self, samples, index, rng):
        ids = samples[index]["ids"].copy()
        labels = ids[1:].copy()
        where = rng.random(len(ids)) < self.noise
        ids[where] = rng.integers(0, VOCAB, int(where.sum()))
        return {"input_ids": ids[:-1], "labels": labels}

    def counts(self, batch: Batch):
        real = batch["labels"] != -100
        return {"next": real.sum(), "early": real[:, : LENGTH // 2].sum()}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        logits, labels = trainee.model(**inputs(batch)).logits, batch["labels"]
        half = LENGTH // 2
        sums = {
            "next": token_sum(logits, labels),
            "early": token_sum(logits[:, :half], labels[:, :half]),
        }
        hits, real = (logits.argmax(-1) == labels).sum(), (labels != -100).sum()
        return Result(sums, {"accuracy": (hits, real)})


@node
class TinyCausal:
    """The objective above as data."""

    noise: float = 0.1

    def bind(self, tokenizer, spec) -> Bound:
        return Bound(self.noise)


def spec(**options: Any):
    given = {"dim": 16, "depth": 2, "heads": 2, "vocab": VOCAB, "length": LENGTH, "dropout": 0.1}
    return recipe("gpt2", **(given | options))


def settings(**options: Any) -> Settings:
    given = {"steps": 8, "batch": 4, "lr": 3e-3, "log_every": 1, "saving": Saving(every=3)}
    return Settings(**(given | options))


def weights(folder) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model" / "model.safetensors")
