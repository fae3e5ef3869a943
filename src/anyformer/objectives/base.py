"""What training asks of a model: examples out of text, a batch out of examples, sums out of it.

An objective as data is a node (`Masked(rate=0.15)`): printed, compared, changed, kept in a run's
record. Bound to a tokenizer and a model's spec it is an `Objective`, which does the work. Nothing
here has state: an example is a function of the data, an index and a seed, so that a run can stop
anywhere and go on, under any number of workers and ranks.

Letters: B rows, N positions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.errors import InputError
from anyformer.model.extra import counts, weights
from anyformer.model.model import Model

Example = dict[str, np.ndarray]  # arrays of one row, by the model's argument names
Batch = dict[str, Tensor]  # the same with rows in front
IGNORED = -100  # a label that nothing is asked at

# What fills an array of a shorter row; input_ids and decoder_input_ids take the pad token.
FILL = {
    "labels": IGNORED,
    "attention_mask": 0,
    "decoder_attention_mask": 0,
    "token_type_ids": 0,
    "langs": 0,
}


@dataclass
class Result:
    """What one micro-batch gave: sums, to be divided by counts of the whole step."""

    losses: dict[str, Tensor]  # term -> sum over what it counts, with its gradient
    metrics: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # name -> sum, count
    carry: dict[str, Any] = field(default_factory=dict)  # what the batch's next piece is read with


class Objective(ABC):
    """An objective bound to a tokenizer and a model's spec."""

    reads: ClassVar[Literal["rows", "documents", "records"]] = "rows"
    weights: Mapping[str, float]  # of each term in the loss: Σ weight · sum / count
    least: ClassVar[int] = 1  # samples without which no example can be made
    pad: int = 0  # the id that fills shorter rows
    exits: ClassVar[bool] = False  # whether it trains the answers of all rounds of a loop

    def length(self, context: int) -> int:
        """The tokens that one row of data needs, so that an example fills a context."""
        return context

    @abstractmethod
    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """One row of arrays, without padding; `rng` is its own, drawn from seed and index."""

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Rows padded on the right to the longest, as tensors."""
        return collate(examples, self.pad)

    def pieces(self, batch: Batch) -> Sequence[Batch]:
        """A batch in pieces that are read in turn, each with what the one before it carries on.

        A piece has gradients of its own, so that the activations of one are there at a time.
        """
        return (batch,)

    def placed(self, batch: Batch) -> Batch:
        """A batch, still with the host, with what a GPU would have to ask it for."""
        return batch

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """How many things each term is a sum over; known before the model runs."""

    @abstractmethod
    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """The sums of each term over a batch."""

    def beside(self, model: Model) -> nn.Module | None:
        """What is trained or read beside the model: a generator, a teacher, more heads."""
        return None


class Trainee(nn.Module):
    """What is trained: a model, and what its objective has beside it."""

    def __init__(self, model: Model, objective: Objective):
        super().__init__()
        self.metrics = True  # whether they are asked for, beside losses
        self.model = model
        self.beside = objective.beside(model)
        self.objective = WithExtra(objective, model.spec) if weights(model.spec) else objective

    def forward(self, batch: Batch) -> Result:
        """The sums of the objective's terms over a batch."""
        return self.objective.terms(self, batch)


class WithExtra(Objective):
    """An objective, and beside its terms what loops of the model add to the loss."""

    def __init__(self, inner: Objective, spec: S.Model):
        if not inner.exits and "exit" in weights(spec):
            raise InputError(
                f"{type(inner).__name__} knows one answer of a model, and loop.halt=Exit trains "
                "those of all rounds: take an objective of tokens, as causal, or loop.halt=Act"
            )
        self.inner, self.spec, self.pad = inner, spec, inner.pad
        self.reads = inner.reads  # type: ignore[misc]
        self.weights = {**inner.weights, **weights(spec)}

    def length(self, context: int) -> int:
        """As it is without them."""
        return self.inner.length(context)

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """As it is without them."""
        return self.inner.example(samples, index, rng)

    def collate(self, examples: Sequence[Example]) -> Batch:
        """As it is without them."""
        return self.inner.collate(examples)

    def pieces(self, batch: Batch) -> Sequence[Batch]:
        """As it is without them."""
        return self.inner.pieces(batch)

    def placed(self, batch: Batch) -> Batch:
        """As it is without them."""
        return self.inner.placed(batch)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """The positions beside what the inner terms count."""
        return {**self.inner.counts(batch), **counts(self.spec, batch)}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """The sums of the inner terms, and those that the model's passes told."""
        told: list[Any] = []
        hook = trainee.model.register_forward_hook(lambda _m, _a, out: told.append(out.extra))
        try:
            result = self.inner.terms(trainee, batch)
        finally:
            hook.remove()
        for name in weights(self.spec):
            result.losses[name] = torch.stack([extra[name] for extra in told]).sum()
        return result

    def beside(self, model: Model) -> nn.Module | None:
        """As it is without them."""
        return self.inner.beside(model)


def collate(examples: Sequence[Example], pad: int) -> Batch:
    """Rows padded on the right to the longest, as tensors (B, N); an attention mask where needed.

    Arrays of no dimension become one of B numbers; rows of equal length need no mask.
    """
    batch: Batch = {}
    for name in examples[0]:
        arrays = [np.asarray(e[name]) for e in examples]
        batch[name] = torch.from_numpy(_stack(arrays, FILL.get(name, pad)))
    for ids, mask in (
        ("input_ids", "attention_mask"),
        ("decoder_input_ids", "decoder_attention_mask"),
    ):
        if ids in batch and mask not in batch:
            lengths, most = [len(e[ids]) for e in examples], batch[ids].shape[1]
            if min(lengths) < most:
                batch[mask] = (torch.arange(most) < torch.tensor(lengths)[:, None]).long()
    return batch


def _stack(arrays: list[np.ndarray], fill: int) -> np.ndarray:
    if all(a.shape == arrays[0].shape for a in arrays):
        return np.stack(arrays)
    shape = tuple(max(sizes) for sizes in zip(*(a.shape for a in arrays), strict=True))
    out = np.full((len(arrays), *shape), fill, arrays[0].dtype)
    for row, array in zip(out, arrays, strict=True):
        row[tuple(slice(n) for n in array.shape)] = array
    return out


def inputs(batch: Batch, *others: str) -> dict[str, Any]:
    """What a model is called with: the batch without its labels and some other names."""
    asked = ("labels", "targets_at", *others)
    return {k: v for k, v in batch.items() if k not in asked}
