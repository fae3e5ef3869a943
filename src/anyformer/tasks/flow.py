"""Inputs to results, in order and in constant memory.

Inputs are read some at a time. Their rows are sorted by length and put into batches under a budget
of tokens, in which padding never costs more than one more call would; results come out in the
order of the inputs. The first windows are small, so that the first results come soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from anyformer.errors import AnyformerError, InputError
from anyformer.generate.sample import evaluating
from anyformer.objectives.base import Example
from anyformer.tasks.base import Answer, Job, Reading, Record

FIRST, MOST, GROWS = 32, 1024, 4  # inputs of the first window and of later ones
HELD = 1 << 20  # characters of a window at most

Numbered = Iterable[tuple[int, Record | AnyformerError]]


@dataclass
class Waiting:
    """An input on its way: its number, what it says, its rows, their answers, or what is wrong."""

    number: int
    record: Record
    reading: Reading | None = None
    answers: list[Answer] | None = None
    error: AnyformerError | None = None

    def fail(self, error: AnyformerError) -> None:
        """Keep what is wrong with this input, by its number."""
        self.error = InputError(f"input {self.number}: {error}")
        self.error.__cause__ = error


@dataclass(frozen=True)
class Failure:
    """In place of a result: what is wrong with an input."""

    number: int
    error: AnyformerError


def flow(job: Job, items: Numbered) -> Iterator[Any]:
    """The result or the Failure of each item, in order."""
    for window in windows(job, items):
        answer(job, window)
        for one in window:
            yield finished(job, one)


def windows(job: Job, items: Numbered) -> Iterator[list[Waiting]]:
    """Inputs some at a time: few at first, then more, and never too many characters."""
    most = 1 if job.options.batch == 1 else FIRST
    window, weight = list[Waiting](), 0
    for number, record in items:
        if isinstance(record, AnyformerError):
            waiting = Waiting(number, {})
            waiting.fail(record)
        else:
            waiting = Waiting(number, record)
            weight += job.weight(record)
        window.append(waiting)
        if len(window) >= most or weight >= HELD:
            yield window
            window, weight = [], 0
            most = most if job.options.batch == 1 else min(MOST, most * GROWS)
    if window:
        yield window


def answer(job: Job, window: list[Waiting]) -> None:
    """Read a window's inputs, and ask the model about all rows of them."""
    good = [one for one in window if one.error is None]
    for one, reading in zip(good, job.read([one.record for one in good]), strict=True):
        if isinstance(reading, AnyformerError):
            one.fail(reading)
        else:
            one.reading, one.answers = reading, [{} for _ in reading.rows]
    rows = [
        (one, at, row)
        for one in good
        if one.reading is not None
        for at, row in enumerate(one.reading.rows)
    ]
    for batch in batches(job, [row for *_, row in rows]):
        ask(job, [rows[at] for at in batch])


def batches(job: Job, rows: Sequence[Example]) -> Iterator[list[int]]:
    """Places of rows that go together: like lengths, within the budgets of rows and tokens."""
    sizes = [job.size(row) for row in rows]
    most, batch, longest, padding = job.options.batch or len(rows), list[int](), 0, 0
    for at in sorted(range(len(rows)), key=lambda k: -sizes[k]):
        lost = longest - sizes[at]
        full = len(batch) >= most or longest * (len(batch) + 1) > job.options.tokens
        if batch and (full or padding + lost > job.spare):
            yield batch
            batch = []
        if not batch:
            longest, padding, lost = sizes[at], 0, 0
        batch.append(at)
        padding += lost
    if batch:
        yield batch


def ask(job: Job, rows: list[tuple[Waiting, int, Example]]) -> None:
    """One pass of the model; where it fails, each row alone, so that the others are answered."""
    rows = [row for row in rows if row[0].error is None]
    if not rows:
        return
    try:
        with evaluating(job.opened.model), evaluating(job.model), torch.inference_mode():
            found = job.answer([row for *_, row in rows])
    except AnyformerError as error:
        if len(rows) == 1:
            return rows[0][0].fail(error)
        for row in rows:
            ask(job, [row])
        return
    for (one, at, _), answer in zip(rows, found, strict=True):
        assert one.answers is not None
        one.answers[at] = answer
        if not all(np.isfinite(value).all() for value in answer.values()):
            one.fail(InputError("the model's answer holds NaN or infinity: look at its weights"))


def finished(job: Job, one: Waiting) -> Any:
    """The result of an input, or its Failure."""
    if one.error is None:
        assert one.reading is not None and one.answers is not None
        try:
            return job.result(one.record, one.reading, one.answers)
        except AnyformerError as error:
            one.fail(error)
    assert one.error is not None
    return Failure(one.number, one.error)
