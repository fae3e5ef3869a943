"""A text written from another: summaries and translations, by either kind of model that writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.model.inputs import position_limit
from anyformer.model.model import Model
from anyformer.objectives import metrics
from anyformer.objectives.base import IGNORED, Example
from anyformer.objectives.common import (
    Ends,
    OfTokens,
    Plan,
    answered,
    check_decoder,
    check_head,
    check_pair,
    check_tokens,
    context_of,
    ends_of,
    pad_of,
    whole,
)
from anyformer.objectives.heads import head_for
from anyformer.objectives.task import Answer, Record, Task, on_device, text_of, told
from anyformer.objectives.text_to_text import closed
from anyformer.spec.node import Positive, Rate, node

SHARE = 4  # a decoder's row is cut so that a quarter of it is left for the target


@node
class ToText(Plan):
    """A target text from a source text: summarisation, translation or any other rewriting.

    An encoder-decoder reads the source and writes the target. A decoder reads the source, what
    stands `between`, and goes on with the target, of which alone it learns.
    """

    source: str = "source"  # the fields of a record
    target: str = "target"
    prefix: str = ""  # in front of every source, as "summarize: " for T5
    between: str = "\n"  # behind the source, for decoders, as "\nTL;DR:"
    source_lang: str | None = None  # languages, where the tokenizer has tokens for them
    target_lang: str | None = None
    context: Positive | None = None  # tokens of a source at most; None: the model's positions
    answer: Positive | None = None  # tokens of a target at most
    smoothing: Rate = 0.0  # share of the target that all tokens get alike
    metric: Literal["rouge", "bleu"] = "rouge"

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head over its vocabulary."""
        return head_for("summarisation", spec)

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Task:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_head(spec, self, S.Vocabulary, S.Adaptive)
        if spec.encoder is None:
            check_decoder(spec, self)
            return self._continued(tokenizer, spec)
        check_pair(spec, self)
        writer = writer_of(tokenizer, spec, self.answer, self.target_lang)
        around = closed(_ends(tokenizer, self.source_lang), tokenizer)
        room = context_of(spec.encoder, self.context)
        return Rewritten(writer, self, around, room)

    def _continued(self, tokenizer: Tokenizer, spec: S.Model) -> Task:
        total = context_of(spec, None)
        answer = self.answer or max(1, total // SHARE)
        front, (eos,) = ends_of(tokenizer).front, tokenizer.need("eos")
        ends = Ends(whole([]), whole([eos]))
        writer = Writer(tokenizer, ends, answer, None, pad_of(tokenizer, spec), None)
        between = whole(tokenizer.encode(self.between)) if self.between else whole([])
        room = total - answer - len(front) - len(between)
        room = room if self.context is None else min(room, self.context)
        if room < 1:
            raise InputError(f"answer={answer}: the model's {total} positions leave no source")
        frame = Ends(front, between)
        return Continued(writer, self, frame, room)


@dataclass(frozen=True)
class Writer:
    """How targets are written: their ids for training, and a text out of what a model writes."""

    tokenizer: Tokenizer
    ends: Ends
    room: int  # tokens of a target with its ends
    start: int | str | None  # what a decoder begins with
    pad: int
    limit: int | None  # positions of the decoder

    def ids(self, text: str) -> np.ndarray:
        """The ids of a target with its ends, cut to the room."""
        kept = whole(self.tokenizer.encode(text))[: max(0, self.room - self.ends.size)]
        return self.ends.around(kept)

    @property
    def eos(self) -> int:
        """The id that ends a target."""
        return int(self.ends.back[0])

    def text(self, ids: np.ndarray) -> str:
        """The text of ids up to their end."""
        over = np.flatnonzero(ids == self.eos)
        kept = ids[: over[0]] if len(over) else ids
        return self.tokenizer.decode(kept.tolist()).strip()

    @property
    def begun(self) -> list[int]:
        """What a decoder is given to go on with: its start, and the front of a target."""
        first = self.start if isinstance(self.start, int) else int(self.ends.back[-1])
        return [first, *self.ends.front.tolist()]

    @property
    def new(self) -> int:
        """Tokens that a decoder may write behind them."""
        begun = len(self.begun)
        return self.room if self.limit is None else min(self.room, self.limit + 1 - begun)

    def generate(self, model: Model, given: dict[str, Tensor], rows: int) -> np.ndarray:
        """What an encoder-decoder writes for some rows, greedily: ids (B, N)."""
        device = next(iter(given.values())).device
        decoder = torch.tensor([self.begun], device=device).expand(rows, -1)
        options: dict[str, Any] = {"max_new_tokens": self.new, "eos_token_id": self.eos}
        found = model.generate(**given, decoder_input_ids=decoder, **options)
        return found[:, len(self.begun) :].cpu().numpy()


def writer_of(
    tokenizer: Tokenizer, spec: S.Model, room: int | None, language: str | None
) -> Writer:
    """What writes targets for the decoder of an encoder-decoder."""
    ends = _written(closed(_ends(tokenizer, language), tokenizer), spec.start)
    size = context_of(spec, room)
    pad, limit = pad_of(tokenizer, spec), position_limit(spec)
    return Writer(tokenizer, ends, size, spec.start, pad, limit)


def _ends(tokenizer: Tokenizer, language: str | None) -> Ends:
    return ends_of(tokenizer if language is None else tokenizer.with_languages(language))


def _written(ends: Ends, start: int | str | None) -> Ends:
    """Ends of a target without the id that its decoder begins with anyway, as [CLS].

    If it stood there twice, positions alone would tell which of them the text comes after.
    """
    same = len(ends.front) > 0 and ends.front[0] == start
    return Ends(ends.front[1:], ends.back) if same else ends


@dataclass
class Written(OfTokens, Task):
    """A task whose answer is a text."""

    writer: Writer
    plan: Any  # with target, metric and smoothing

    reads = "records"

    def __post_init__(self) -> None:
        self.pad, self.smoothing = self.writer.pad, self.plan.smoothing

    def decode(self, answers: Sequence[Sequence[Answer]], records: Sequence[Record]) -> list[Any]:
        """The text written for each record."""
        return [self.writer.text(rows[0]["ids"]) for rows in answers]

    def score(self, predictions: Sequence[Any], records: Sequence[Record]) -> dict[str, float]:
        """ROUGE or BLEU; a record may have several right texts for BLEU."""
        right = [record.get(self.plan.target) for record in records]
        for record, text in zip(records, right, strict=True):
            if not text:
                raise InputError(f"{told(record)} has no {self.plan.target!r} to compare with")
        if self.plan.metric == "bleu":
            return {"bleu": metrics.bleu(predictions, right)}  # type: ignore[arg-type]
        return metrics.rouge(predictions, right)  # type: ignore[arg-type]


@dataclass
class Rewritten(Written):
    """Sources for an encoder, targets for its decoder."""

    plan: ToText
    around: Ends
    room: int

    def features(self, record: Record) -> list[Example]:
        """The source, cut to the room."""
        text = self.plan.prefix + text_of(record, self.plan.source)
        ids = whole(self.writer.tokenizer.encode(text))[: max(1, self.room - self.around.size)]
        return [{"input_ids": self.around.around(ids)}]

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """Source and target of a record."""
        record = samples[index]
        labels = self.writer.ids(text_of(record, self.plan.target))
        return answered(self.features(record)[0]["input_ids"], labels, self.writer.start)

    def answer(self, model: Model, examples: Sequence[Example]) -> list[Answer]:
        """The ids that the model writes."""
        batch = on_device(self.collate(examples), model)
        return [{"ids": row} for row in self.writer.generate(model, batch, len(examples))]


@dataclass
class Continued(Written):
    """Source and target in one row of a decoder."""

    plan: ToText
    around: Ends
    room: int

    def features(self, record: Record) -> list[Example]:
        """The source and what stands behind it."""
        text = self.plan.prefix + text_of(record, self.plan.source)
        ids = whole(self.writer.tokenizer.encode(text))[: self.room]
        return [{"input_ids": self.around.around(ids)}]

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A row of which the target alone is asked for."""
        record = samples[index]
        source = self.features(record)[0]["input_ids"]
        target = self.writer.ids(text_of(record, self.plan.target))
        row = np.concatenate([source, target])
        labels = row[1:].copy()
        labels[: max(0, len(source) - 1)] = IGNORED
        return {"input_ids": row[:-1], "labels": labels}

    def answer(self, model: Model, examples: Sequence[Example]) -> list[Answer]:
        """The ids that the model goes on with; sources are padded on the left."""
        rows = [example["input_ids"] for example in examples]
        size = max(map(len, rows))
        ids = np.full((len(rows), size), self.pad, np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, size - len(row) :], mask[i, size - len(row) :] = row, 1
        batch = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        options: dict[str, Any] = {
            "max_new_tokens": self.writer.room,
            "eos_token_id": self.writer.eos,
        }
        found = model.generate(**on_device(batch, model), **options)
        return [{"ids": row} for row in found[:, size:].cpu().numpy()]
