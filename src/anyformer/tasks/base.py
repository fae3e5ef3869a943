"""What all tasks share: options, and how one job reads records, asks the model, tells results."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from anyformer import spec as S
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.model.model import Model
from anyformer.objectives.base import Batch, Example, collate, inputs
from anyformer.objectives.common import pad_of
from anyformer.objectives.task import on_device

Record = Mapping[str, Any]
Answer = dict[str, np.ndarray]  # what a model says of one row, reduced to what the result needs
CALL = 32  # tokens of padding that cost a CPU about as much as one more call of the model
CALL_GPU = 4096


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every task can be asked: how inputs are read, put together and refused."""

    batch: int | None = None  # inputs in one pass of the model at most; 1: each is answered at once
    tokens: int = 4096  # tokens in one pass at most
    progress: bool | None = None  # a bar; None: on long inputs, where stderr is a terminal
    on_error: Literal["raise", "skip", "return"] = "raise"  # return: {"error", "input"} as results
    truncate: bool = False  # cut what is longer than the model reads
    length: int | None = None  # tokens of a row at most; None: the model's positions
    fields: Mapping[str, str] = field(default_factory=dict[str, str])  # their names in records

    def __post_init__(self) -> None:
        for name in ("batch", "tokens", "length"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
        one_of(self, "on_error", ("raise", "skip", "return"))


def one_of(options: Options, name: str, known: Sequence[Any]) -> None:
    """Raise unless an option has one of some values."""
    value = getattr(options, name)
    if value not in known:
        listed = ", ".join(map(repr, known))
        raise InputError(f"{name} must be one of {listed}, not {value!r}")


def positive(options: Options, *names: str) -> None:
    """Raise unless options are whole numbers from 1 on, or None where that is allowed."""
    for name in names:
        value = getattr(options, name)
        if type(value) is not int or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")


@dataclass(frozen=True)
class Opened:
    """A model, and what is known of it: its tokenizer, the objective it was tuned with, labels."""

    model: Model
    words: Tokenizer | None = None
    plan: Any = None
    labels: tuple[str, ...] = ()  # () where nothing names them
    pixels: Mapping[str, Any] = field(default_factory=dict[str, Any])  # mean and std

    def plan_of(self, kind: type) -> Any:
        """The objective of a kind: that of tuning, or one with its usual settings."""
        return self.plan if isinstance(self.plan, kind) else kind()

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; a model that came without one raises."""
        if self.words is None:
            raise InputError(
                "this task reads or writes text, and the model came without a tokenizer: give "
                "its folder instead, or tokenizer=anyformer.tokenizer(folder)"
            )
        return self.words


@dataclass
class Reading:
    """One record as rows for the model, and what the result needs to know of them."""

    rows: list[Example]
    about: Any = None


class Job(ABC):
    """One task: records to rows, rows to answers, answers to a plain result."""

    Options: ClassVar[type[Options]] = Options
    fields: ClassVar[tuple[str, ...]] = ("text",)  # of a record; a bare input is the first one
    images: ClassVar[bool] = False  # whether a bare input is an image

    def __init__(self, opened: Opened, options: Any):
        self.opened, self.options, self.model = opened, options, opened.model
        self.pad = 0 if opened.words is None else pad_of(opened.words, opened.model.spec)
        self.same = dict[str, str]()  # other names of fields, as the tuned objective has them
        self.prepare()

    def needed(self) -> tuple[str, ...]:
        """The fields that a record must have."""
        return self.fields[:1]

    def settled(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a record as the task reads them."""
        return fields

    @abstractmethod
    def prepare(self) -> None:
        """Make what the task needs, or raise where the model can't do it."""

    @abstractmethod
    def read(self, records: Sequence[Record]) -> list[Reading | InputError]:
        """Each record as rows, or why it can't be."""

    @abstractmethod
    def result(self, record: Record, reading: Reading, answers: Sequence[Answer]) -> Any:
        """The plain result of a record."""

    def answer(self, rows: Sequence[Example]) -> list[Answer]:
        """What the model says of each of some rows; by default its logits."""
        logits = self.ask(rows).logits
        assert logits is not None
        found = logits.float().cpu().numpy()
        sizes = [len(row["input_ids"]) if found.ndim == 3 else None for row in rows]
        return [{"logits": one[:size]} for one, size in zip(found, sizes, strict=True)]

    def collate(self, rows: Sequence[Example]) -> Batch:
        """Rows as tensors, padded on the right."""
        return collate(rows, self.pad)

    def ask(self, rows: Sequence[Example], *others: str) -> Any:
        """The model's output for some rows."""
        return self.model(**inputs(on_device(self.collate(rows), self.model), *others))

    def size(self, row: Example) -> int:
        """The tokens of a row."""
        return max(map(np.size, row.values()))

    def weight(self, record: Record) -> int:
        """About how many characters of memory a record takes while it waits."""
        return sum(len(value) for value in record.values() if isinstance(value, str))

    @property
    def spare(self) -> int:
        """Tokens of padding that are worth one call less."""
        device = next(self.model.parameters()).device
        return CALL if device.type == "cpu" else CALL_GPU


def body_of(model: Model) -> Model:
    """The same model without its head; the weights are the model's own."""
    body = copied(model, head=None)
    body.spec = S.override(model.spec, "head", None)
    return body


def copied(module: Any, **parts: Any) -> Any:
    """A module with some parts changed, in evaluation mode; the others are its own, not copies."""
    new = copy.copy(module)
    new._modules = {**module._modules, **parts}
    new.training = False
    return new


def softmax(logits: np.ndarray) -> np.ndarray:
    """Chances along the last axis."""
    return torch.from_numpy(np.asarray(logits, np.float32)).softmax(-1).numpy()


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """The chance of yes, of each logit."""
    return torch.from_numpy(np.asarray(logits, np.float32)).sigmoid().numpy()
