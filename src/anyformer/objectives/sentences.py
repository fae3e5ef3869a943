"""Pairs of texts beside masked tokens: the second follows (BERT), both are in order (ALBERT)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from anyformer import spec as S
from anyformer.data.samples import Sample, Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.objectives import corrupt
from anyformer.objectives.base import Batch, Example, Objective, Result, Trainee, inputs
from anyformer.objectives.common import (
    Plan,
    check_encoder,
    check_head,
    check_tokens,
    context_of,
    pad_of,
    whole,
    words_of,
)
from anyformer.objectives.losses import asked, hits, token_sum
from anyformer.objectives.masked import Masked, Masker, masker_of
from anyformer.spec.node import Positive, Rate, node

Rng = np.random.Generator
Segments = Sequence[np.ndarray]
TRIES = 100  # documents that are looked at for one with text


class _Pairs(Plan):
    @property
    @abstractmethod
    def asks(self) -> Literal["next", "order"]:
        """What the head is asked of a pair."""

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head for tokens and for the pair."""
        if isinstance(spec.head, S.Pretraining) and spec.head.asks == self.asks:
            return spec
        words = spec.head if isinstance(spec.head, S.Vocabulary) else words_of(spec)
        return S.override(spec, "head", S.Pretraining(tokens=words, asks=self.asks))


@node
class NextSentence(_Pairs):
    """Masked tokens, and whether the second text follows the first (BERT, arXiv:1810.04805)."""

    masking: Masked = Masked(dynamic=False)
    other: Rate = 0.5  # how often the second text is of another document
    short: Rate = 0.1  # how often a pair is shorter than the context
    context: Positive | None = None  # tokens of a row; None: the model's positions

    @property
    def asks(self) -> Literal["next", "order"]:
        """Whether the second text follows the first."""
        return "next"

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        return Following(self, *_parts(self, tokenizer, spec))


@node
class SentenceOrder(_Pairs):
    """Masked n-grams, and whether two texts are in their order (ALBERT, arXiv:1909.11942)."""

    masking: Masked = Masked(unit="word", spans="ngram", longest=3)
    swap: Rate = 0.5  # how often they are not
    short: Rate = 0.1  # how often a pair is shorter than the context
    context: Positive | None = None  # tokens of a row; None: the model's positions

    @property
    def asks(self) -> Literal["next", "order"]:
        """Whether the two texts are in order."""
        return "order"

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        return InOrder(self, *_parts(self, tokenizer, spec))


def _parts(
    plan: NextSentence | SentenceOrder, tokenizer: Tokenizer, spec: S.Model
) -> tuple[Masker, tuple[int, int], int, bool, int]:
    """What both objectives are made of, after checking that the model has it."""
    check_tokens(spec, tokenizer)
    check_encoder(spec, plan)
    check_head(spec, plan, S.Pretraining)
    assert isinstance(spec.head, S.Pretraining)
    if spec.head.asks != plan.asks:
        raise InputError(
            f"{type(plan).__name__} needs a head with asks={plan.asks!r}, not {spec.head.asks!r}: "
            f"take {type(plan).__name__}(…).fit(spec)"
        )
    cls, sep = tokenizer.need("cls", "sep")
    context = context_of(spec, plan.context)
    if context < 5:
        raise InputError(f"a pair needs 5 tokens, three of them special; context is {context}")
    masker, pad = masker_of(plan.masking, tokenizer), pad_of(tokenizer, spec)
    return masker, (cls, sep), context, spec.embed.types > 1, pad


@dataclass
class _PairRows(Objective):
    """Rows `[CLS] first [SEP] second [SEP]`, masked, with a label for the pair."""

    plan: Any
    masker: Masker
    ends: tuple[int, int]  # [CLS] and [SEP]
    context: int
    types: bool
    pad: int = 0

    reads = "documents"
    label = answer = ""  # the label's name among the model's arguments, its logits' in the output

    def __post_init__(self) -> None:
        self.weights = {"tokens": 1.0, self.plan.asks: 1.0}

    @abstractmethod
    def pair(
        self, first: np.ndarray, second: np.ndarray, told: tuple[Samples, Sample, int], rng: Rng
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """The two texts as they are shown, and their label; `told` is whence and how long."""

    def example(self, samples: Samples, index: int, rng: Rng) -> Example:
        """A pair out of a document, from a random segment on."""
        room = self.context - 3
        target = int(rng.integers(2, room + 1)) if rng.random() < self.plan.short else room
        first, second, home = self._following(samples, index, target, rng)
        first, second, label = self.pair(first, second, (samples, home, target), rng)
        return self._row(*corrupt.cut_pair(first, second, room, rng), label, rng)

    def _row(self, first: np.ndarray, second: np.ndarray, label: int, rng: Rng) -> Example:
        cls, sep = self.ends
        ids = np.concatenate([[cls], first, [sep], second, [sep]])
        row, labels = self.masker(ids, rng)
        found = {"input_ids": row, "labels": labels, self.label: np.array(label)}
        if self.types:
            found["token_type_ids"] = (np.arange(len(ids)) > len(first) + 1).astype(np.int64)
        return found

    def _following(
        self, samples: Samples, index: int, target: int, rng: Rng
    ) -> tuple[np.ndarray, np.ndarray, Sample]:
        """Two texts in a row of the sample's document, or of another where it has no two tokens."""
        sample = samples[index]
        for _ in range(TRIES):
            segments = segments_of(sample)
            start = int(rng.integers(max(1, len(segments) - 1)))
            chunk = self.collected(segments, start, target, 2)
            chunk = chunk if len(chunk) > 1 else self.collected(segments, 0, target, 2)
            if len(chunk) > 1:
                cut = int(rng.integers(1, len(chunk)))
                return np.concatenate(chunk[:cut]), np.concatenate(chunk[cut:]), sample
            if chunk and len(chunk[0]) > 1:  # one segment: cut in two somewhere
                at = int(rng.integers(1, len(chunk[0])))
                return chunk[0][max(0, at - target) : at], chunk[0][at : at + target], sample
            sample = samples[int(rng.integers(samples.size))]
        raise InputError("the documents are empty: two tokens of text are needed for a pair")

    def collected(
        self, segments: Segments, start: int, target: int, least: int
    ) -> list[np.ndarray]:
        """Segments from `start` on until there are `target` tokens and `least` segments.

        Special tokens, such as what ends a document, are left out.
        """
        found: list[np.ndarray] = []
        tokens = 0
        for at in range(start, len(segments)):
            ids = whole(segments[at])
            ids = ids[~self.masker.special[ids]]
            if len(ids):
                found.append(ids)
                tokens += len(ids)
            if tokens >= target and len(found) >= least:
                break
        return found

    def counts(self, batch: Batch) -> dict[str, Any]:
        """The number of masked tokens and of pairs."""
        return {"tokens": asked(batch["labels"]), self.plan.asks: asked(batch[self.label])}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """The sums of both cross-entropies, and how often each was right."""
        out = trainee.model(**inputs(batch, self.label))
        tokens, pair = out.prediction_logits, out[self.answer]
        assert tokens is not None
        losses = {
            "tokens": token_sum(tokens, batch["labels"]),
            self.plan.asks: token_sum(pair, batch[self.label]),
        }
        found = {
            "accuracy": hits(tokens, batch["labels"]),
            f"{self.plan.asks}_accuracy": hits(pair, batch[self.label]),
        }
        return Result(losses, found)


class Following(_PairRows):
    """Whether the second text follows the first: label 0 if so, 1 if it is of another document."""

    label, answer = "next_sentence_label", "seq_relationship_logits"
    least = 2  # the other document

    def pair(
        self, first: np.ndarray, second: np.ndarray, told: tuple[Samples, Sample, int], rng: Rng
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """The two texts, or the first with one of another document."""
        samples, home, target = told
        if rng.random() >= self.plan.other:
            return first, second, 0
        if samples.size < 2:
            raise InputError(
                "the second text must be of another document, and the data has one: give more "
                "documents, cut files into some with split='block' (--split block), or take the "
                "objective 'sentence-order' or 'masked'"
            )
        for _ in range(TRIES):
            other = samples[int(rng.integers(samples.size))]
            if place_of(other) == place_of(home):
                continue
            segments = segments_of(other)
            start = int(rng.integers(max(1, len(segments))))
            found = self.collected(segments, start, max(1, target - len(first)), 1)
            if found:
                return first, np.concatenate(found), 1
        raise InputError("no other document has text: pairs need two documents at least")


class InOrder(_PairRows):
    """Whether two texts that follow each other are in order: label 0 if so, 1 if swapped."""

    label, answer = "sentence_order_label", "sop_logits"

    def pair(
        self, first: np.ndarray, second: np.ndarray, told: tuple[Samples, Sample, int], rng: Rng
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """The two texts, or the second before the first."""
        swap = rng.random() < self.plan.swap
        return (second, first, 1) if swap else (first, second, 0)


def segments_of(sample: Sample) -> Segments:
    """The segments of a document; the whole of it where none were made."""
    return sample["segments"] or [sample["ids"]]


def place_of(sample: Sample) -> tuple[int, int]:
    """Which document a sample is, also in a mixture of sources."""
    return sample.get("part", 0), sample["place"]
