"""A tag for each word: words are cut into pieces, and the first piece answers for its word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.objectives import metrics
from anyformer.objectives.base import IGNORED, Batch, Example, Result, Trainee, inputs
from anyformer.objectives.common import Plan, check_head, check_tokens, pad_of
from anyformer.objectives.heads import head_for
from anyformer.objectives.losses import asked, hits, token_sum
from anyformer.objectives.task import (
    Answer,
    Reader,
    Record,
    Task,
    check_count,
    field_of,
    index_of,
    reader_of,
    told,
)
from anyformer.spec.node import Positive, node


@node
class TokenClassification(Plan):
    """Tags of words, as names of persons and places in the IOB schemes or parts of speech."""

    labels: tuple[str, ...] = ()  # names of the tags, in the order of the logits
    words: str = "words"  # the fields of a record: lists of the same length
    tags: str = "tags"
    pieces: Literal["first", "all"] = "first"  # which pieces of a word have its tag in training
    scheme: Literal["IOB1", "IOB2", "IOBES"] | None = None  # of strict scores; None: as they read
    length: Positive | None = None  # tokens of a row at most; None: the model's positions

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head that gives each position as many logits."""
        return head_for("token-classification", spec, max(1, len(self.labels)))

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> WordTags:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_head(spec, self, S.Project)
        check_count(spec.head, self.labels)
        reader = reader_of(tokenizer, spec, self.length)
        return WordTags(self, reader, pad_of(tokenizer, spec))


@dataclass
class WordTags(Task):
    """Sentences as words, with their tags."""

    plan: TokenClassification
    reader: Reader
    pad: int = 0

    def __post_init__(self) -> None:
        self.weights: Mapping[str, float] = {"tags": 1.0}

    def words(self, record: Record) -> list[str]:
        """The words of a record."""
        words = field_of(record, self.plan.words)
        fine = isinstance(words, list | tuple) and all(isinstance(w, str) for w in words)
        if not fine or not words:
            raise InputError(f"{told(record)}: {self.plan.words!r} must be a list of words")
        return list(words)

    def tags(self, record: Record) -> list[int]:
        """The numbers of a record's tags, one for each word."""
        tags, words = field_of(record, self.plan.tags), self.words(record)
        if not isinstance(tags, list | tuple) or len(tags) != len(words):
            raise InputError(f"{told(record)} has {len(words)} words: it needs as many tags")
        return [index_of(tag, self.plan.labels, record) for tag in tags]

    def parts(self, record: Record) -> list[range]:
        """The words of a record in runs that fit into a row, in order, each word once."""
        words, found, at = self.words(record), list[range](), 0
        while at < len(words):
            pieces = self._row(words[at:], cut=False)[1]
            if len(pieces) <= self.reader.room:
                return [*found, range(at, len(words))]
            room = self.reader.room - int((pieces < 0).sum())
            counts = np.bincount(pieces[pieces >= 0], minlength=len(words) - at)
            fits = max(1, int((np.cumsum(counts) <= room).sum()))
            while fits > 1 and self._size(words[at : at + fits]) > self.reader.room:
                fits -= 1
            found.append(range(at, at + fits))
            at += fits
        return found

    def _size(self, words: Sequence[str]) -> int:
        return len(self._row(words, cut=False)[1])

    def _row(self, words: Sequence[str], cut: bool = True) -> tuple[Example, np.ndarray]:
        """A row of words, and which of them each token belongs to; -1: none."""
        also = ("offset_mapping", "special_tokens_mask")
        row, found = self.reader.read(" ".join(words), cut=cut, also=also)
        return row, aligned(words, found["offset_mapping"], found["special_tokens_mask"])

    def spread(self, records: Iterable[Record]) -> list[Record]:
        """Records that fit into a row each."""
        found: list[Record] = []
        for record in records:
            words, tags = self.words(record), self.tags(record)
            for part in self.parts(record):
                some = {self.plan.words: [words[i] for i in part]}
                names = {self.plan.tags: [self.plan.labels[tags[i]] for i in part]}
                found.append({**record, **some, **names})
        return found

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A sentence with tags at the first pieces of words; of a longer one a random part."""
        record = samples[index]
        words, tags, parts = self.words(record), self.tags(record), self.parts(record)
        part = parts[int(rng.integers(len(parts)))]
        row, owner = self._row([words[i] for i in part])
        labels = np.where(owner >= 0, np.array(tags)[part.start + owner.clip(0)], IGNORED)
        if self.plan.pieces == "first":
            labels[~firsts(owner)] = IGNORED
        return {**row, "labels": labels}

    def features(self, record: Record) -> list[Example]:
        """Rows that hold each word once."""
        words = self.words(record)
        return [self._row([words[i] for i in part])[0] for part in self.parts(record)]

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """The number of tags."""
        return {"tags": asked(batch["labels"])}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """The sum of cross-entropies over tags."""
        logits, labels = trainee.model(**inputs(batch)).logits, batch["labels"]
        assert logits is not None
        return Result({"tags": token_sum(logits, labels)}, {"accuracy": hits(logits, labels)})

    def decode(self, answers: Sequence[Sequence[Answer]], records: Sequence[Record]) -> list[Any]:
        """The tags of each record's words; a word without a token is outside."""
        return [self._tagged(rows, record) for rows, record in zip(answers, records, strict=True)]

    def _tagged(self, rows: Sequence[Answer], record: Record) -> list[str]:
        words, labels = self.words(record), self.plan.labels
        found = ["O" if "O" in labels else labels[0]] * len(words)
        for part, row in zip(self.parts(record), rows, strict=True):
            _, owner = self._row([words[i] for i in part])
            for at in np.flatnonzero(firsts(owner)):
                found[part.start + owner[at]] = labels[int(row["logits"][at].argmax())]
        return found

    def score(self, predictions: Sequence[Any], records: Sequence[Record]) -> dict[str, float]:
        """Scores of spans where tags mark some, else of tags alone."""
        right = [[self.plan.labels[i] for i in self.tags(record)] for record in records]
        marks = all(
            label == "O" or label[:2] in ("B-", "I-", "E-", "S-") for label in self.plan.labels
        )
        if marks:
            return metrics.span_scores(predictions, right, self.plan.scheme)
        found, true = ([tag for tags in side for tag in tags] for side in (predictions, right))
        return {"accuracy": metrics.accuracy(found, true), "f1 macro": metrics.f1(found, true)}


def aligned(
    words: Sequence[str], offsets: Sequence[tuple[int, int]], special: Sequence[int]
) -> np.ndarray:
    """Which word each token of the words, joined by spaces, belongs to: that of its first letter.

    Special tokens and those of spaces alone belong to none, -1.
    """
    owner = np.concatenate([np.append(np.full(len(w), i), -1) for i, w in enumerate(words)])
    found = np.full(len(offsets), -1)
    for at, ((start, end), mark) in enumerate(zip(offsets, special, strict=True)):
        some = owner[start:end]
        if not mark and (some >= 0).any():
            found[at] = some[some >= 0][0]
    return found


def firsts(owner: np.ndarray) -> np.ndarray:
    """Which tokens (N,) are the first of their word."""
    found = np.zeros(len(owner), bool)
    _, places = np.unique(owner, return_index=True)
    found[places] = True
    return found & (owner >= 0)
