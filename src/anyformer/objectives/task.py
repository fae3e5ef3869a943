"""What the tasks of fine-tuning share: records in, predictions and scores out.

A task reads records: dicts with texts, images and labels. It makes examples for training as every
objective does, and for evaluation features of a record, answers to them, predictions and scores.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from anyformer import spec as S
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.generate.sample import evaluating
from anyformer.model.model import Model
from anyformer.objectives.base import Batch, Example, Objective, inputs
from anyformer.objectives.common import context_of

Record = Mapping[str, Any]
Answer = dict[str, np.ndarray]  # what a model says of one row, by the names of its output
ANSWERS = ("logits", "mc_logits", "start_logits", "end_logits")


class Task(Objective):
    """An objective over records that can be predicted and scored."""

    reads = "records"

    @abstractmethod
    def features(self, record: Record) -> list[Example]:
        """What a model reads of one record, without labels: one row or several."""

    @abstractmethod
    def decode(self, answers: Sequence[Sequence[Answer]], records: Sequence[Record]) -> list[Any]:
        """Predictions from the answers to the features of each record."""

    @abstractmethod
    def score(self, predictions: Sequence[Any], records: Sequence[Record]) -> dict[str, float]:
        """The field's scores of predictions."""

    def spread(self, records: Iterable[Record]) -> list[Record]:
        """Records as training reads them: several for one that is longer than a row."""
        return list(records)

    def answer(self, model: Model, examples: Sequence[Example]) -> list[Answer]:
        """What a model says of each of some rows."""
        batch = on_device(self.collate(examples), model)
        out = model(**inputs(batch))
        there = {k: out[k].float().cpu().numpy() for k in ANSWERS if k in out}
        return [{k: v[i] for k, v in there.items()} for i in range(len(examples))]


def predict(task: Task, model: Model, records: Sequence[Record], batch: int = 8) -> list[Any]:
    """A model's predictions for records, its rows read `batch` at a time, like lengths together."""
    rows = [(i, row) for i, record in enumerate(records) for row in task.features(record)]
    order = sorted(range(len(rows)), key=lambda k: -max(map(np.size, rows[k][1].values())))
    found: list[Answer] = [{}] * len(rows)
    with evaluating(model), torch.no_grad():
        for at in range(0, len(order), batch):
            some = order[at : at + batch]
            for k, answer in zip(some, task.answer(model, [rows[k][1] for k in some]), strict=True):
                found[k] = answer
    answers: list[list[Answer]] = [[] for _ in records]
    for (i, _), answer in zip(rows, found, strict=True):
        answers[i].append(answer)
    return task.decode(answers, records)


def evaluate(
    task: Task, model: Model, records: Sequence[Record], batch: int = 8
) -> dict[str, float]:
    """A model's scores on records."""
    return task.score(predict(task, model, records, batch), records)


def on_device(batch: Batch, model: Model) -> Batch:
    """A batch where the model is."""
    device = next(model.parameters()).device
    return {name: value.to(device) for name, value in batch.items()}


# ------------------------------------------------------------------------ texts


@dataclass(frozen=True)
class Reader:
    """Texts as rows of ids that a model can read."""

    tokenizer: Tokenizer
    room: int  # tokens at most
    types: bool  # the model tells two texts apart by token types
    langs: bool = False  # the model has vectors for languages

    def __call__(self, text: str, pair: str | None = None) -> Example:
        """The ids of a text or of two, with special tokens, cut to the room."""
        return self.read(text, pair)[0]

    def read(
        self, text: str, pair: str | None = None, cut: bool = True, also: tuple[str, ...] = ()
    ) -> tuple[Example, dict[str, Any]]:
        """The ids of a text or of two, cut if wanted, and all that the tokenizer tells of them."""
        types = ("token_type_ids",) if self.types else ()
        found = self.tokenizer(text, pair, self.room if cut else None, also=(*types, *also))
        if not found["input_ids"]:
            raise InputError(f"the text {text[:40]!r} has no tokens: leave the record out")
        names = ("input_ids", *types, *(("langs",) if self.langs else ()))
        return {n: np.asarray(found[n], np.int64) for n in names if n in found}, found


def reader_of(tokenizer: Tokenizer, spec: S.Model, length: int | None) -> Reader:
    """What reads texts for a model, in rows of so many tokens or of as many as it can read."""
    side = spec.encoder or spec
    room = context_of(side, length)
    return Reader(tokenizer, room, side.embed.types > 1, side.embed.langs > 0)


def told(record: Record) -> str:
    """A record in a few words, to be found again."""
    if "id" in record:
        return f"record {record['id']!r}"
    short = {
        k: v[:40] + "…" if isinstance(v, str) and len(v) > 40 else v for k, v in record.items()
    }
    shown = ", ".join(f"{k}={v!r}"[:60] for k, v in list(short.items())[:4])
    return f"the record with {shown}"


def field_of(record: Record, name: str) -> Any:
    """A field of a record; one that isn't there raises and says what is."""
    if record.get(name) is None:
        has = ", ".join(map(str, record)) or "nothing"
        raise InputError(f"{told(record)} has no {name!r}; it has {has}: name the field to read")
    return record[name]


def text_of(record: Record, name: str) -> str:
    """A text of a record."""
    found = field_of(record, name)
    if not isinstance(found, str):
        raise InputError(f"{told(record)}: {name!r} must be a text, not {type(found).__name__}")
    return found


# ----------------------------------------------------------------------- labels


def labels_of(records: Iterable[Record], name: str = "label") -> tuple[str, ...]:
    """The labels that occur in a field, in order; numbers by their value."""
    found: set[str] = set()
    for record in records:
        value = field_of(record, name)
        found.update(map(str, value) if isinstance(value, list | tuple) else [str(value)])
    number = lambda text: text.removeprefix("-").isdigit()
    whole = all(map(number, found))
    return tuple(sorted(found, key=lambda text: (int(text), text) if whole else (0, text)))


def index_of(value: Any, labels: Sequence[str], record: Record) -> int:
    """The number of a label, which is given by its name or, where names are no numbers, by it."""
    if str(value) in labels:
        return labels.index(str(value))
    number = int(value) if isinstance(value, int) or str(value).isdecimal() else -1
    if 0 <= number < len(labels) and not any(label.isdigit() for label in labels):
        return number
    known = ", ".join(map(repr, labels[:20])) + (" …" if len(labels) > 20 else "")
    raise InputError(f"{told(record)} has the label {value!r}; known labels: {known}")


def check_count(head: S.Head | None, labels: Sequence[str]) -> None:
    """Raise unless there are labels, and a head has one logit for each."""
    if not labels:
        raise InputError("the labels aren't named: labels=(…), or labels_of(records) finds them")
    if len(set(labels)) != len(labels):
        raise InputError(f"labels {labels} hold one twice")
    size = head.count if isinstance(head, S.Classes) else None
    size = head.size if isinstance(head, S.Project) else size
    if size != len(labels):
        raise InputError(
            f"{len(labels)} labels are named and the model's head has {size}: take .fit(spec), or "
            "load the model with labels=…"
        )
