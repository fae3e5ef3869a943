"""Answers that stand in a text: where they start and end, in long texts window by window."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from anyformer.objectives.losses import hits, token_sum
from anyformer.objectives.task import (
    Answer,
    Reader,
    Record,
    Task,
    reader_of,
    text_of,
    told,
)
from anyformer.spec.node import Natural, Positive, node

WINDOW = "window"  # the field that says which window of a record is meant


@node
class QuestionAnswering(Plan):
    """The span of a context that answers a question (SQuAD, arXiv:1606.05250, 1806.03822).

    Records have `question`, `context` and `answers`, texts and where they start; without any
    there is no answer, which the class token stands for.
    """

    question: str = "question"  # the fields of a record
    context: str = "context"
    answers: str = "answers"
    impossible: bool = False  # some questions have no answer: SQuAD 2.0
    length: Positive | None = None  # tokens of a row at most; None: the model's positions, or 512
    stride: Natural = 128  # tokens that neighbouring windows share
    most: Positive = 64  # tokens of a question
    longest: Positive = 30  # tokens of an answer
    best: Positive = 20  # starts and ends that are looked at in each window
    threshold: float = 0.0  # no answer where its score is so much higher than the best span's

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head for the start and the end."""
        return head_for("question-answering", spec)

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Spans:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_head(spec, self, S.Span)
        return Spans(self, reader_of(tokenizer, spec, self.length), pad_of(tokenizer, spec))


@dataclass(frozen=True)
class Window:
    """A question with a part of its context."""

    row: Example
    first: int  # the position of the part's first token
    letters: np.ndarray  # (n, 2): where each token of the part starts and ends in the context
    none: int  # the position that stands for no answer


@dataclass
class Spans(Task):
    """Questions with their contexts in overlapping windows."""

    plan: QuestionAnswering
    reader: Reader
    pad: int = 0

    def __post_init__(self) -> None:
        self.weights: Mapping[str, float] = {"start": 0.5, "end": 0.5}

    def windows(self, record: Record) -> list[Window]:
        """All windows of a record: every token of the context is in one of them at least."""
        question, context = text_of(record, self.plan.question), text_of(record, self.plan.context)
        also = ("offset_mapping", "special_tokens_mask")
        row, told_of = self.reader.read(question, context, cut=False, also=also)
        inner = np.flatnonzero(np.array(told_of["special_tokens_mask"]) == 0)
        asked = len(self.reader.tokenizer.encode(question))
        if len(inner) <= asked:
            raise InputError(f"{told(record)}: its context has no tokens")
        dropped = inner[min(self.plan.most, asked) : asked]  # the end of a long question
        start, end = int(inner[asked]), int(inner[-1]) + 1
        room = self.reader.room - (len(row["input_ids"]) - len(dropped) - (end - start))
        if room <= self.plan.stride:
            raise InputError(
                f"a row of {self.reader.room} tokens leaves {room} for the context, and windows "
                f"share {self.plan.stride}: take a greater length, or a smaller stride or most"
            )
        letters = trimmed(told_of["offset_mapping"][start:end], context)
        kept = np.setdiff1d(np.arange(start), dropped)
        found: list[Window] = []
        for at in range(0, max(1, end - start - self.plan.stride), room - self.plan.stride):
            part = np.arange(start + at, min(start + at + room, end))
            places = np.concatenate([kept, part, np.arange(end, len(row["input_ids"]))])
            some = {name: value[places] for name, value in row.items()}
            span = letters[at : at + len(part)]
            found.append(Window(some, len(kept), span, self._none(some["input_ids"])))
        return found

    def _none(self, ids: np.ndarray) -> int:
        cls = self.reader.tokenizer.role_ids.get("cls")
        places = np.flatnonzero(ids == cls) if cls is not None else np.array([0])
        return int(places[0]) if len(places) else 0

    def spread(self, records: Iterable[Record]) -> list[Record]:
        """Each record once for each of its windows."""
        return [{**r, WINDOW: k} for r in records for k in range(len(self.windows(r)))]

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """One window, that which the record names or a random one, and the answer in it."""
        record = samples[index]
        windows = self.windows(record)
        at = record.get(WINDOW)
        window = windows[int(rng.integers(len(windows))) if at is None else int(at)]
        start, end = self.place(record, window)
        places = {"start_positions": np.array(start), "end_positions": np.array(end)}
        return {**window.row, **places}

    def place(self, record: Record, window: Window) -> tuple[int, int]:
        """The first and the last position of the answer; those of none where it isn't all there."""
        answers = answers_of(record, self.plan.answers)
        if not answers:
            return window.none, window.none
        text, start = answers[0]
        context = text_of(record, self.plan.context)
        if context[start : start + len(text)] != text:
            raise InputError(
                f"{told(record)}: the answer {text[:40]!r} doesn't stand at letter {start} of the "
                "context: correct answer_start"
            )
        touched = (window.letters[:, 0] < start + len(text)) & (window.letters[:, 1] > start)
        places = np.flatnonzero(touched)
        whole = len(places) and window.letters[places[0], 0] <= start
        if not whole or window.letters[places[-1], 1] < start + len(text.rstrip()):
            return window.none, window.none
        return window.first + int(places[0]), window.first + int(places[-1])

    def features(self, record: Record) -> list[Example]:
        """All windows of a record."""
        return [window.row for window in self.windows(record)]

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """The number of windows."""
        count = torch.tensor(len(batch["input_ids"]), device=batch["input_ids"].device)
        return {"start": count, "end": count}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """The sums of both ends' cross-entropies among real positions."""
        out = trainee.model(**inputs(batch, "start_positions", "end_positions"))
        mask, result = batch.get("attention_mask"), Result({})
        for name, logits in (("start", out.start_logits), ("end", out.end_logits)):
            assert logits is not None
            shown = logits if mask is None else logits.masked_fill(~mask.bool(), -torch.inf)
            right = batch[f"{name}_positions"]
            result.losses[name] = token_sum(shown, right)
            result.metrics[f"{name} accuracy"] = hits(shown, right)
        return result

    def decode(self, answers: Sequence[Sequence[Answer]], records: Sequence[Record]) -> list[Any]:
        """For each record {"text", "doubt"}: the best span, or "" where none is likelier by far.

        `doubt` is how much the score of no answer is above that of the best span.
        """
        return [self._best(rows, record) for rows, record in zip(answers, records, strict=True)]

    def _best(self, rows: Sequence[Answer], record: Record) -> dict[str, Any]:
        context = text_of(record, self.plan.context)
        best, none, text = -np.inf, np.inf, ""
        for window, row in zip(self.windows(record), rows, strict=True):
            start, end = row["start_logits"], row["end_logits"]
            none = min(none, float(start[window.none] + end[window.none]))
            inside = slice(window.first, window.first + len(window.letters))
            score, first, last = best_span(start[inside], end[inside], self.plan)
            if score > best:
                best, text = score, context[window.letters[first, 0] : window.letters[last, 1]]
        doubt = none - best
        silent = self.plan.impossible and doubt > self.plan.threshold
        return {"text": "" if silent else text, "best": text, "doubt": float(doubt)}

    def score(self, predictions: Sequence[Any], records: Sequence[Record]) -> dict[str, float]:
        """SQuAD's exact match and F1, of version 2.0 where questions may have no answer."""
        right = [[text for text, _ in answers_of(r, self.plan.answers)] for r in records]
        if self.plan.impossible:
            doubts, said = [p["doubt"] for p in predictions], [p["best"] for p in predictions]
            return metrics.squad2(said, right, doubts, self.plan.threshold)
        for record, answers in zip(records, right, strict=True):
            if not answers:
                raise InputError(f"{told(record)} has no answer: set impossible=True")
        return metrics.squad([p["text"] for p in predictions], right)


def best_span(
    start: np.ndarray, end: np.ndarray, plan: QuestionAnswering
) -> tuple[float, int, int]:
    """The highest sum of a start and an end behind it, no longer than allowed, and their places."""
    starts, ends = (np.argsort(-x, kind="stable")[: plan.best] for x in (start, end))
    sums = start[starts][:, None] + end[ends][None]
    size = ends[None] - starts[:, None] + 1
    sums = np.where((size > 0) & (size <= plan.longest), sums, -np.inf)
    at = int(sums.argmax())
    first, last = starts[at // len(ends)], ends[at % len(ends)]
    if not np.isfinite(sums.flat[at]):  # none goes together: the best single token
        first = last = int((start + end).argmax())
        return float(start[first] + end[first]), first, first
    return float(sums.flat[at]), int(first), int(last)


def trimmed(offsets: Sequence[tuple[int, int]], text: str) -> np.ndarray:
    """Where tokens start and end in a text (n, 2), spaces at their ends left out."""
    found = np.array(offsets, np.int64).reshape(-1, 2)
    for pair in found:
        while pair[0] < pair[1] and text[pair[0]].isspace():
            pair[0] += 1
        while pair[0] < pair[1] and text[pair[1] - 1].isspace():
            pair[1] -= 1
    return found


def answers_of(record: Record, name: str = "answers") -> list[tuple[str, int]]:
    """The right answers of a record with their places; none where there is none.

    They may be {"text": [...], "answer_start": [...]} or a list of {"text", "answer_start"}.
    """
    found = record.get(name)
    if not found or record.get("is_impossible"):
        return []
    try:
        if isinstance(found, Mapping):
            pairs = zip(found["text"], found["answer_start"], strict=True)
        else:
            pairs = [(one["text"], one["answer_start"]) for one in found]
        return [(str(text), int(start)) for text, start in pairs]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{told(record)}: {name!r} must hold texts and answer_start, not {found!r:.80}"
        ) from error


def read_squad(path: str | Path) -> list[Record]:
    """The records of a file in the form of SQuAD 1.1 or 2.0, one for each question."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))["data"]
        return [
            {
                "id": asked["id"],
                "title": article.get("title", ""),
                "context": paragraph["context"],
                "question": asked["question"],
                "answers": asked.get("answers", []),
                "is_impossible": asked.get("is_impossible", False),
            }
            for article in data
            for paragraph in article["paragraphs"]
            for asked in paragraph["qas"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} is no SQuAD file: it needs data, paragraphs, context and qas ({error})"
        ) from error
