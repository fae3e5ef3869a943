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

from anyformer.data.samples import Samples
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


class Objective(ABC):
    """An objective bound to a tokenizer and a model's spec."""

    reads: ClassVar[Literal["rows", "documents", "records"]] = "rows"
    weights: Mapping[str, float]  # of each term in the loss: Σ weight · sum / count
    pad: int = 0  # the id that fills shorter rows

    def length(self, context: int) -> int:
        """The tokens that one row of data needs, so that an example fills a context."""
        return context

    @abstractmethod
    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """One row of arrays, without padding; `rng` is its own, drawn from seed and index."""

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Rows padded on the right to the longest, as tensors."""
        return collate(examples, self.pad)

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
        self.model = model
        self.beside = objective.beside(model)
        self.objective = objective

    def forward(self, batch: Batch) -> Result:
        """The sums of the objective's terms over a batch."""
        return self.objective.terms(self, batch)


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
            lengths = torch.tensor([len(e[ids]) for e in examples])
            if int(lengths.min()) < batch[ids].shape[1]:
                batch[mask] = (torch.arange(batch[ids].shape[1]) < lengths[:, None]).long()
    return batch


def _stack(arrays: list[np.ndarray], fill: int) -> np.ndarray:
    if not arrays[0].ndim:
        return np.stack(arrays)
    shape = tuple(max(sizes) for sizes in zip(*(a.shape for a in arrays), strict=True))
    out = np.full((len(arrays), *shape), fill, arrays[0].dtype)
    for row, array in zip(out, arrays, strict=True):
        row[tuple(slice(n) for n in array.shape)] = array
    return out


def inputs(batch: Batch, *others: str) -> dict[str, Any]:
    """What a model is called with: the batch without its labels and some other names."""
    return {k: v for k, v in batch.items() if k != "labels" and k not in others}
