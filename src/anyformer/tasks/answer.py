"""Answers to questions, as spans of a document that may be long, and choices among texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.objectives.answer import QuestionAnswering, Window
from anyformer.objectives.base import Batch, Example
from anyformer.objectives.choose import MultipleChoice
from anyformer.objectives.task import on_device
from anyformer.tasks.base import Answer, Job, Options, Reading, Record, positive, softmax


def each(records: Sequence[Record], read: Callable[[Record], Reading]) -> list[Any]:
    """Every record read alone: its Reading, or why it can't be read."""
    found: list[Reading | InputError] = []
    for record in records:
        try:
            found.append(read(record))
        except InputError as error:
            found.append(error)
    return found


def filled(record: Record, *names: str) -> None:
    """Raise where a text of a record is none or empty."""
    for name in names:
        value = record.get(name)
        if not isinstance(value, str) or not value.strip():
            kind = "empty" if isinstance(value, str) else type(value).__name__
            raise InputError(f"its {name!r} must be a text, not {kind}")


# ------------------------------------------------------------------------ answers


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(Options):
    """How spans are looked for."""

    top: int = 1  # answers of a result: 1 a mapping, more a list of different spans
    longest: int | None = None  # tokens of an answer; None: as the model was tuned with, or 30
    stride: int | None = None  # tokens that neighbouring windows share; None: up to 128
    impossible: bool | None = None  # there may be no answer: "" with its score; None: as tuned

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "top", *(n for n in ("longest", "stride") if getattr(self, n) is not None))


@dataclass(frozen=True)
class Span:
    """A stretch of the context with its score."""

    score: float
    start: int
    end: int


class AnswerSpan(Job):
    """The span of a context that answers a question."""

    Options = AnswerOptions
    fields = ("question", "context")

    def needed(self) -> tuple[str, ...]:
        """Both."""
        return self.fields

    def prepare(self) -> None:
        """Bind the objective of questions with the windows that are asked for."""
        plan: QuestionAnswering = self.opened.plan_of(QuestionAnswering)
        self.same = {"question": plan.question, "context": plan.context}
        plan = S.override(S.override(plan, "question", "question"), "context", "context")
        for name, value in (
            ("length", self.options.length),
            ("longest", self.options.longest),
            ("stride", self.options.stride),
            ("impossible", self.options.impossible),
        ):
            plan = plan if value is None else S.override(plan, name, value)
        self.bound = plan.bind(self.opened.tokenizer, self.model.spec)
        if self.options.stride is None and self.bound.reader.room // 4 < plan.stride:
            plan = S.override(plan, "stride", self.bound.reader.room // 4)
            self.bound = plan.bind(self.opened.tokenizer, self.model.spec)
        self.plan = plan

    def read(self, records: Sequence[Record]) -> list[Reading | InputError]:
        """The windows of each record."""
        return each(records, self._read)

    def _read(self, record: Record) -> Reading:
        filled(record, "question", "context")
        windows = self.bound.windows(record)
        return Reading([window.row for window in windows], windows)

    def answer(self, rows: Sequence[Example]) -> list[Answer]:
        """The logits of starts and ends (N,)."""
        out = self.ask(rows)
        start, end = (x.float().cpu().numpy() for x in (out.start_logits, out.end_logits))
        sizes = [len(row["input_ids"]) for row in rows]
        return [{"start": start[i, :n], "end": end[i, :n]} for i, n in enumerate(sizes)]

    def result(self, record: Record, reading: Reading, answers: Sequence[Answer]) -> Any:
        """{"answer", "score", "start", "end"}, letters of the context; "" where there is none."""
        found, none = list[Span](), 1.0
        for window, answer in zip(reading.about, answers, strict=True):
            spans, silence = self._spans(window, answer)
            found += spans
            none = min(none, silence)
        if self.plan.impossible:
            found.append(Span(none, 0, 0))
        found = _different(sorted(found, key=lambda span: -span.score))[: self.options.top]
        text = record["context"]
        told = [
            {"answer": text[s.start : s.end], "score": s.score, "start": s.start, "end": s.end}
            for s in found
        ]
        return told[0] if self.options.top == 1 else told

    def _spans(self, window: Window, answer: Answer) -> tuple[list[Span], float]:
        """The best spans of a window, and the chance of none.

        Chances are among the window's tokens of the context and the place that stands for none.
        """
        inside = np.arange(window.first, window.first + len(window.letters))
        places = np.concatenate([[window.none], inside])
        start, end = softmax(answer["start"][places]), softmax(answer["end"][places])
        size = len(inside)
        ends = np.arange(size)[None] - np.arange(size)[:, None]
        fine = (ends >= 0) & (ends < self.plan.longest)
        sums = np.where(fine, start[1:, None] * end[None, 1:], -1.0)
        few = np.argsort(-sums, None, kind="stable")[: self.options.top * 4]
        found = [
            Span(float(sums.flat[at]), int(a), int(b))
            for at in few
            if sums.flat[at] >= 0
            for a, b in [(window.letters[at // size, 0], window.letters[at % size, 1])]
        ]
        return found, float(start[0] * end[0])


def _different(spans: list[Span]) -> list[Span]:
    """Each place once, with its best score."""
    seen: dict[tuple[int, int], Span] = {}
    for span in spans:
        seen.setdefault((span.start, span.end), span)
    return list(seen.values())


# ------------------------------------------------------------------------ choices


class Choose(Job):
    """One of several texts, each read with a question, a context or both."""

    fields = ("choices", "question", "context")

    def needed(self) -> tuple[str, ...]:
        """The choices, and what they go with."""
        return ("choices",)

    def prepare(self) -> None:
        """Bind the objective of choices."""
        self.tuned: MultipleChoice = self.opened.plan_of(MultipleChoice)
        own = {"choices": self.tuned.choices, "question": self.tuned.question}
        own |= {"context": self.tuned.context}
        self.same = {name: theirs for name, theirs in own.items() if theirs}
        self.bound = {
            (c, q): MultipleChoice(
                context=c, question=q, length=self.options.length or self.tuned.length
            ).bind(self.opened.tokenizer, self.model.spec)
            for c, q in (("context", "question"), ("context", None), (None, "question"))
        }
        self.any = next(iter(self.bound.values()))

    def read(self, records: Sequence[Record]) -> list[Reading | InputError]:
        """The sequences (C, N) of each record."""
        return each(records, self._read)

    def _read(self, record: Record) -> Reading:
        there = [n if n in record else None for n in ("context", "question")]
        if there == [None, None]:
            raise InputError("its choices go with nothing: it needs a 'question' or a 'context'")
        filled(record, *(name for name in there if name))
        bound = self.bound[there[0], there[1]]
        if not self.options.truncate:
            self._check(" ".join(record[name] for name in there if name), bound.choices(record))
        return Reading(bound.features(record))

    def _check(self, first: str, choices: Sequence[str]) -> None:
        room = self.any.reader.room
        for number, choice in enumerate(choices, 1):
            size = len(self.opened.tokenizer(first, choice)["input_ids"])
            if size > room:
                raise InputError(
                    f"with choice {number} it has {size} tokens, and the model reads {room}: "
                    "truncate=True (--truncate) cuts it"
                )

    def collate(self, rows: Sequence[Example]) -> Batch:
        """Rows as tensors (B, C, N)."""
        return self.any.collate(rows)

    def answer(self, rows: Sequence[Example]) -> list[Answer]:
        """The logits of each record's choices (C,)."""
        logits = self.any.logits(self.model, on_device(self.collate(rows), self.model))
        found = logits.float().cpu().numpy()
        return [
            {"logits": one[: int(row["choices"])]} for one, row in zip(found, rows, strict=True)
        ]

    def result(self, record: Record, reading: Reading, answers: Sequence[Answer]) -> Any:
        """{"choice", "text", "score", "scores"}: the number of the one taken, from 0."""
        chances = softmax(answers[0]["logits"])
        best = int(chances.argmax())
        told = {"choice": best, "text": record["choices"][best], "score": float(chances[best])}
        return {**told, "scores": chances.tolist()}
