"""One of several texts: each choice is read with the question, and the highest logit is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.model.model import Model
from anyformer.objectives import metrics
from anyformer.objectives.base import Batch, Example, Result, Trainee, inputs
from anyformer.objectives.common import Plan, check_head, check_tokens, pad_of
from anyformer.objectives.heads import head_for
from anyformer.objectives.losses import hits, token_sum
from anyformer.objectives.task import (
    Answer,
    Reader,
    Record,
    Task,
    field_of,
    on_device,
    reader_of,
    text_of,
    told,
)
from anyformer.spec.node import Positive, node

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@node
class MultipleChoice(Plan):
    """One of the choices of each record, as the next sentence or the answer to a question.

    The first text is the context with the question behind it, or either; the second is a choice.
    """

    context: str | None = None  # the fields of a record
    question: str | None = "question"
    choices: str = "choices"  # a list of texts
    label: str = "label"  # the right one's number from 0, its letter from A, or its text
    length: Positive | None = None  # tokens of a row at most; None: the model's positions

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head that gives each sequence one logit."""
        return spec if isinstance(spec.head, S.Double) else head_for("multiple-choice", spec)

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Chosen:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_head(spec, self, S.Choices, S.Double)
        if self.context is None and self.question is None:
            raise InputError("choices need something to go with: name context or question")
        return Chosen(self, reader_of(tokenizer, spec, self.length), pad_of(tokenizer, spec))


@dataclass
class Chosen(Task):
    """Records with several sequences (C, N) each."""

    plan: MultipleChoice
    reader: Reader
    pad: int = 0

    def __post_init__(self) -> None:
        self.weights: Mapping[str, float] = {"choices": 1.0}

    def choices(self, record: Record) -> list[str]:
        """The choices of a record."""
        found = field_of(record, self.plan.choices)
        fine = isinstance(found, list | tuple) and all(isinstance(c, str) for c in found)
        if not fine or len(found) < 2:
            raise InputError(
                f"{told(record)}: {self.plan.choices!r} must be a list of texts, 2 or more"
            )
        return list(found)

    def target(self, record: Record) -> int:
        """The number of the right choice."""
        value, choices = field_of(record, self.plan.label), self.choices(record)
        if isinstance(value, str) and value in choices:
            return choices.index(value)
        if isinstance(value, str) and len(value) == 1 and value.upper() in LETTERS:
            value = LETTERS.index(value.upper())
        number = int(value) if str(value).isdigit() else -1
        if not 0 <= number < len(choices):
            raise InputError(
                f"{told(record)} has the label {value!r}, which is none of its {len(choices)} "
                f"choices: give a number from 0 to {len(choices) - 1}, a letter or the text"
            )
        return number

    def features(self, record: Record) -> list[Example]:
        """One example of C rows, with their mask."""
        names = [name for name in (self.plan.context, self.plan.question) if name is not None]
        first = " ".join(text_of(record, name) for name in names)
        rows = [self.reader(first, choice) for choice in self.choices(record)]
        found = {name: _stacked([row[name] for row in rows], self._fill(name)) for name in rows[0]}
        sizes = np.array([len(row["input_ids"]) for row in rows])
        mask = np.arange(sizes.max()) < sizes[:, None]
        return [{**found, "attention_mask": mask.astype(np.int64), "choices": np.array(len(rows))}]

    def _fill(self, name: str) -> int:
        return self.pad if name == "input_ids" else 0

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A record's sequences and the right one's number."""
        record = samples[index]
        return {**self.features(record)[0], "labels": np.array(self.target(record))}

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Rows as tensors (B, C, N); missing choices repeat the first one, and can't be chosen."""
        batch = super().collate(examples)
        most = batch["input_ids"].shape[1]
        spare = torch.arange(most) >= batch["choices"][:, None]  # (B, C)
        for name, value in batch.items():
            if value.dim() == 3:
                batch[name] = torch.where(spare[..., None], value[:, :1], value)
        return batch

    def logits(self, model: Model, batch: Batch) -> Tensor:
        """Logits (B, C), of missing choices minus infinity."""
        out = model(**inputs(batch, "choices"))
        found = out.logits if out.mc_logits is None else out.mc_logits
        assert found is not None
        spare = torch.arange(found.shape[1], device=found.device) >= batch["choices"][:, None]
        return found.masked_fill(spare, -torch.inf)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """The number of records."""
        labels = batch["labels"]
        return {"choices": torch.tensor(labels.numel(), device=labels.device)}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """The sum of cross-entropies among choices."""
        logits, labels = self.logits(trainee.model, batch), batch["labels"]
        return Result({"choices": token_sum(logits, labels)}, {"accuracy": hits(logits, labels)})

    def answer(self, model: Model, examples: Sequence[Example]) -> list[Answer]:
        """The logits of each record's choices."""
        found = self.logits(model, on_device(self.collate(examples), model))
        return [{"logits": row} for row in found.float().cpu().numpy()]

    def decode(self, answers: Sequence[Sequence[Answer]], records: Sequence[Record]) -> list[Any]:
        """The number of the choice taken, of each record."""
        return [int(rows[0]["logits"].argmax()) for rows in answers]

    def score(self, predictions: Sequence[Any], records: Sequence[Record]) -> dict[str, float]:
        """The share of records whose right choice was taken."""
        return {"accuracy": metrics.accuracy(predictions, [self.target(r) for r in records])}


def _stacked(rows: list[np.ndarray], fill: int) -> np.ndarray:
    out = np.full((len(rows), max(map(len, rows))), fill, np.int64)
    for into, row in zip(out, rows, strict=True):
        into[: len(row)] = row
    return out
