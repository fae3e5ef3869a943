"""Classes of a text or of two: one label, many, or numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.objectives import metrics
from anyformer.objectives.base import Batch, Example, Result, Trainee, inputs
from anyformer.objectives.common import Plan, check_head, check_tokens, pad_of
from anyformer.objectives.heads import head_for
from anyformer.objectives.losses import hits, sure_sum, token_sum, wide
from anyformer.objectives.task import (
    Answer,
    Reader,
    Record,
    Task,
    check_count,
    field_of,
    index_of,
    reader_of,
    text_of,
    told,
)
from anyformer.spec.node import Positive, Rate, node

Answers = Literal["one", "many", "numbers"]


@node
class Classification(Plan):
    """A label for each text, or for each pair of texts."""

    labels: tuple[str, ...] = ()  # their names, in the order of the logits
    answers: Answers = "one"  # one label, each yes or no, or numbers without labels
    text: str = "text"  # the fields of a record
    pair: str | None = None
    label: str = "label"
    length: Positive | None = None  # tokens of a row at most; None: the model's positions
    smoothing: Rate = 0.0  # share of the target that all labels get alike

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head of as many classes."""
        return head_for("classification", spec, max(1, len(self.labels)), self.answers)

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> TextClasses:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_head(spec, self, S.Classes)
        if self.answers != "numbers":
            check_count(spec.head, self.labels)
        reader = reader_of(tokenizer, spec, self.length)
        bound = Classes(self.labels, self.answers, self.label, self.smoothing)
        return TextClasses(bound, self, reader, pad_of(tokenizer, spec), spec.encoder is not None)


@dataclass(frozen=True)
class Classes:
    """Labels of records, their losses, predictions and scores."""

    labels: tuple[str, ...]
    answers: Answers
    label: str
    smoothing: float = 0.0

    def target(self, record: Record) -> np.ndarray:
        """A label as a model's labels have it: a number (), yes and no (C,) or numbers (C,)."""
        value = field_of(record, self.label)
        if self.answers == "one":
            return np.array(index_of(value, self.labels, record))
        if self.answers == "many":
            found = np.zeros(len(self.labels), np.int64)
            found[[index_of(v, self.labels, record) for v in _listed(value)]] = 1
            return found
        try:
            numbers = np.array(value, np.float32).reshape(-1)
        except (TypeError, ValueError):
            numbers = np.array([np.nan])
        if not np.isfinite(numbers).all():
            raise InputError(f"{told(record)}: {self.label!r} must be a number, not {value!r}")
        return numbers

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The sum of the losses of logits (B, C)."""
        if self.answers == "one":
            return token_sum(logits, labels, self.smoothing)
        if self.answers == "many":
            return sure_sum(logits, labels)
        if logits.shape != labels.shape:
            raise InputError(
                f"records have {labels.shape[1]} numbers and the model's head {logits.shape[1]}"
            )
        return (wide(logits) - labels).square().sum()

    def metrics(self, logits: Tensor, labels: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """What can be told of a batch: accuracy, or how far off the numbers are."""
        if self.answers == "one":
            return {"accuracy": hits(logits, labels)}
        count = torch.tensor(labels.numel(), device=labels.device)
        if self.answers == "many":
            return {"accuracy": (((logits > 0).long() == labels).sum(), count)}
        return {"absolute error": ((wide(logits.detach()) - labels).abs().sum(), count)}

    def decode(self, logits: np.ndarray) -> Any:
        """One prediction of logits (C,): a label, a list of them, a number or several."""
        if self.answers == "one":
            return self.labels[int(logits.argmax())]
        if self.answers == "many":
            return [name for name, logit in zip(self.labels, logits, strict=True) if logit > 0]
        return float(logits[0]) if len(logits) == 1 else logits.tolist()

    def score(self, predictions: Sequence[Any], records: Sequence[Record]) -> dict[str, float]:
        """Accuracy and F1, of two labels also Matthews' correlation; correlations of numbers."""
        targets = [self.target(record) for record in records]
        if self.answers == "numbers":
            a = [float(x) for p in predictions for x in np.reshape(p, -1)]
            b = [float(x) for t in targets for x in t]
            off = float(np.mean(np.square(np.array(a) - np.array(b))))
            found = {"pearson": metrics.pearson(a, b), "spearman": metrics.spearman(a, b)}
            return {**found, "squared error": off}
        if self.answers == "many":
            sets = [
                {name for name, yes in zip(self.labels, t, strict=True) if yes} for t in targets
            ]
            said = [set(p) for p in predictions]
            both = {
                f"f1 {how}": metrics.f1(said, sets, how, self.labels) for how in ("micro", "macro")
            }
            return {"accuracy": metrics.accuracy(said, sets), **both}
        right = [self.labels[int(t)] for t in targets]
        scores = {
            "accuracy": metrics.accuracy(predictions, right),
            "f1 macro": metrics.f1(predictions, right),
            "matthews": metrics.matthews(predictions, right),
        }
        if len(self.labels) == 2:
            last = self.labels[1]
            scores["f1"] = metrics.f1(predictions, right, "binary", positive=last)
        return scores


def _listed(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, list | tuple | np.ndarray) else [value]


class OfClasses(Task):
    """A task whose answer is a row of classes (B, C)."""

    classes: Classes
    weights: Mapping[str, float] = {"classes": 1.0}

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A record's input and its label."""
        record = samples[index]
        return {**self.features(record)[0], "labels": self.classes.target(record)}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """The number of labels."""
        labels = batch["labels"]
        return {"classes": torch.tensor(labels.numel(), device=labels.device)}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """The sum of the losses."""
        logits, labels = trainee.model(**inputs(batch)).logits, batch["labels"]
        assert logits is not None
        loss = self.classes.loss(logits, labels)
        return Result({"classes": loss}, self.classes.metrics(logits, labels))

    def decode(self, answers: Sequence[Sequence[Answer]], records: Sequence[Record]) -> list[Any]:
        """A prediction for each record."""
        return [self.classes.decode(rows[0]["logits"]) for rows in answers]

    def score(self, predictions: Sequence[Any], records: Sequence[Record]) -> dict[str, float]:
        """The scores of predictions."""
        return self.classes.score(predictions, records)


@dataclass
class TextClasses(OfClasses):
    """Texts with their labels."""

    classes: Classes
    plan: Classification
    reader: Reader
    pad: int = 0
    writes: bool = False  # an encoder-decoder: its decoder reads the text as well

    def features(self, record: Record) -> list[Example]:
        """The text, or both of them, in one row."""
        pair = None if self.plan.pair is None else text_of(record, self.plan.pair)
        return [self.reader(text_of(record, self.plan.text), pair)]

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Rows as tensors; a decoder that reads the same text has the same mask."""
        batch = super().collate(examples)
        if self.writes and "attention_mask" in batch:
            batch["decoder_attention_mask"] = batch["attention_mask"]
        return batch
