"""Tasks that read a text as one row: its class, its vector.

Letters: B rows, N positions, d width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.inputs import position_limit
from anyformer.objectives.base import Batch, Example, inputs
from anyformer.objectives.classify import Classification
from anyformer.objectives.common import check_tokens
from anyformer.objectives.task import on_device
from anyformer.tasks.base import (
    Answer,
    Job,
    Options,
    Reading,
    Record,
    body_of,
    one_of,
    sigmoid,
    softmax,
)
from anyformer.tasks.first import narrowed

Found = dict[str, Any]  # what a tokenizer tells of one text


class TextJob(Job):
    """A task whose rows are texts."""

    also: tuple[str, ...] = ()  # what is asked of the tokenizer beside ids

    def prepare(self) -> None:
        """Find out how long a row may be, and what goes with its ids."""
        spec = self.model.spec
        side = spec.encoder or spec
        check_tokens(spec, self.opened.tokenizer)
        limit, asked = position_limit(side), self.options.length
        if asked is not None and limit is not None and asked > limit:
            raise InputError(f"length={asked}: the model has {limit} positions; take no more")
        self.room: int | None = asked or limit
        self.names = ["input_ids"]
        self.names += ["token_type_ids"] if side.embed.types > 1 else []
        self.names += ["langs"] if side.embed.langs > 0 else []

    def found(self, records: Sequence[Record]) -> list[Found | InputError]:
        """What the tokenizer tells of records' texts, all at once where it can be."""
        checked: list[Found | InputError | None] = [_fault(record) for record in records]
        good = [i for i, fault in enumerate(checked) if fault is None]
        pairs = any("pair" in records[i] for i in good)
        try:
            if pairs:
                raise InputError("some have two texts: each is read alone")
            columns = self._encode([records[i]["text"] for i in good]) if good else {}
            for at, i in enumerate(good):
                checked[i] = {name: rows[at] for name, rows in columns.items()}
        except InputError:
            for i in good:
                checked[i] = self._alone(records[i])
        return [one if one is not None else InputError("it has no tokens") for one in checked]

    def _encode(self, text: Any, pair: Any = None, cut: int | None = None) -> Found:
        types = ("token_type_ids",) if "token_type_ids" in self.names else ()
        return self.opened.tokenizer(text, pair, cut, also=(*types, *self.also))

    def _alone(self, record: Record) -> Found | InputError:
        try:
            return self._encode(record["text"], record.get("pair"))
        except InputError as error:
            return error

    def fitting(self, record: Record, found: Found) -> Found:
        """A text that is no longer than the model reads: cut where asked, else an error."""
        size = len(found["input_ids"])
        if self.room is None or size <= self.room:
            return found
        if not self.options.truncate:
            raise InputError(
                f"it has {size} tokens, and the model reads {self.room}: truncate=True "
                "(--truncate) cuts it"
            )
        return self._encode(record["text"], record.get("pair"), self.room)

    def row(self, found: Found) -> Example:
        """The arrays that the model reads."""
        if not found["input_ids"]:
            raise InputError("it has no tokens: leave it out")
        return {n: np.asarray(found[n], np.int64) for n in self.names if n in found}

    def read(self, records: Sequence[Record]) -> list[Reading | InputError]:
        """Each text as one row."""
        done: list[Reading | InputError] = []
        for record, found in zip(records, self.found(records), strict=True):
            try:
                done.append(found if isinstance(found, InputError) else self.reading(record, found))
            except InputError as error:
                done.append(error)
        return done

    def reading(self, record: Record, found: Found) -> Reading:
        """One text as its rows."""
        return Reading([self.row(self.fitting(record, found))])


def _fault(record: Record) -> InputError | None:
    """Why the texts of a record can't be read."""
    for name in ("text", "pair"):
        value = record.get(name, "-")
        if not isinstance(value, str):
            return InputError(f"its {name!r} must be a text, not {type(value).__name__}")
        if not value.strip():
            return InputError("it is an empty text: leave it out" if name == "text" else "no pair")
    return None


# ------------------------------------------------------------------------ classes


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions(Options):
    """How classes are told."""

    top: int | None = 1  # labels of a result: 1 a mapping, more a list, None all of them
    threshold: float = 0.5  # where a text may have many labels: those with at least this chance

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top is not None and (type(self.top) is not int or self.top < 1):
            raise InputError(f"top must be a whole number of at least 1, or None, not {self.top!r}")


def classes(logits: np.ndarray, labels: Sequence[str], head: S.Classes, options: Any) -> Any:
    """Logits (C,) as labels with their chances, or as numbers."""
    if head.answers == "numbers":
        return {"number": float(logits[0])} if len(logits) == 1 else {"numbers": logits.tolist()}
    chances = softmax(logits) if head.answers == "one" else sigmoid(logits)
    order = np.argsort(-chances, kind="stable")
    listed = [{"label": labels[i], "score": float(chances[i])} for i in order]
    if head.answers == "many" and options.top == 1:
        return [one for one in listed if one["score"] >= options.threshold]
    return listed[0] if options.top == 1 else listed[: options.top]


class Classify(TextJob):
    """The class of a text, or of two texts."""

    Options = ClassifyOptions
    fields = ("text", "pair")

    def prepare(self) -> None:
        """Find the names of the labels."""
        super().prepare()
        self.model, plan = narrowed(self.model), self.opened.plan
        if isinstance(plan, Classification):
            self.same = {"text": plan.text, **({"pair": plan.pair} if plan.pair else {})}

    def collate(self, rows: Sequence[Example]) -> Batch:
        """Rows as tensors; a decoder that reads the same text has the same mask."""
        batch = super().collate(rows)
        if self.model.spec.encoder is not None and "attention_mask" in batch:
            batch["decoder_attention_mask"] = batch["attention_mask"]
        return batch

    def result(self, record: Record, reading: Reading, answers: Sequence[Answer]) -> Any:
        """{"label", "score"}, several of them, or a number."""
        head = self.model.spec.head
        assert isinstance(head, S.Classes)
        return classes(answers[0]["logits"], self.opened.labels, head, self.options)


# ------------------------------------------------------------------------ vectors


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(Options):
    """How a text becomes one vector."""

    pool: Literal["mean", "cls", "none"] = "mean"  # over all tokens, the first one; or every token
    normalise: bool = False  # vectors of length 1
    arrays: bool = False  # numpy arrays in place of lists

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "pool", ("mean", "cls", "none"))


class Embed(TextJob):
    """The vector of a text: what the stack gives for its tokens, pooled."""

    Options = EmbedOptions

    def prepare(self) -> None:
        """Leave the head out, which nobody asks."""
        super().prepare()
        if self.model.spec.encoder is None and self.model.spec.head is not None:
            self.model = body_of(self.model)
        if self.options.pool == "cls":
            self.model = narrowed(self.model)

    def answer(self, rows: Sequence[Example]) -> list[Answer]:
        """The vector (d,) of each row, or those of its tokens (N, d)."""
        batch = on_device(self.collate(rows), self.model)
        if self.model.spec.encoder is not None:  # one id, which is not asked about
            batch["decoder_input_ids"] = torch.zeros_like(batch["input_ids"][:, :1])
        out = self.model(**inputs(batch))
        told = out.last_hidden_state
        if self.model.spec.encoder is not None:
            told = out.encoder_last_hidden_state
        sizes = [len(row["input_ids"]) for row in rows]
        return [{"vector": self._pooled(told[i, :n])} for i, n in enumerate(sizes)]

    def _pooled(self, hidden: torch.Tensor) -> np.ndarray:
        """(N, d) -> (d,), or as it is."""
        hidden = hidden.float()
        how = self.options.pool
        vector = hidden.mean(0) if how == "mean" else hidden[0] if how == "cls" else hidden
        if self.options.normalise:
            vector = torch.nn.functional.normalize(vector, dim=-1)
        return vector.cpu().numpy()

    def weight(self, record: Record) -> int:
        """Vectors of every token take more than its text."""
        return super().weight(record) * (16 if self.options.pool == "none" else 1)

    def result(self, record: Record, reading: Reading, answers: Sequence[Answer]) -> Any:
        """A list of numbers, or an array."""
        vector = answers[0]["vector"]
        return vector if self.options.arrays else vector.tolist()
