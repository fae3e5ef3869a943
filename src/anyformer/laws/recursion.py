"""Laws of recursion: unrolled it computes the same, and rounds come and go without a trace."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from anyformer import spec as S
from anyformer.checkpoint import untied, with_rounds
from anyformer.laws.broken import all_same, finite, holds
from anyformer.laws.cases import answers, case, each
from anyformer.spec.faults import closes
from anyformer.spec.schedule import turns


@contextmanager
def hushed() -> Iterator[None]:
    """Within it, nothing is logged of which weights were converted."""
    logger = logging.getLogger("anyformer")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def unrolls(spec: S.Model) -> bool:
    """Whether blocks of the main stack run again, and a plain stack can compute it."""
    return any(turn for _, turn in turns(spec.stack)) and not closes(spec.stack)


@torch.no_grad()
def law_unrolled(spec: S.Model, seed: int) -> None:
    """A block for each application, made of what it shares, owns and adds, changes nothing."""
    c = case(S.override(spec, "stack.loop", None), seed)
    with hushed():
        flat: Any = untied(c.model)
    holds(not flat.report.fresh and not flat.report.dropped, flat.report.summary)
    all_same(answers(c, flat), c.plain(), "unrolled")


def goes_round(spec: S.Model) -> bool:
    """Whether the main stack has rounds."""
    halt = spec.stack.loop and spec.stack.loop.halt
    fixed = isinstance(halt, S.Route) and bool(halt.capacity)
    return S.ring(spec.stack) is not None and not closes(spec.stack) and not fixed


@torch.no_grad()
def law_rounds(spec: S.Model, seed: int) -> None:
    """More rounds draw no weight anew, run, and leave what was there as it was."""
    c = case(spec, seed)
    found = S.ring(spec.stack)
    assert found is not None
    with hushed():
        more: Any = with_rounds(c.model, found.rounds + 2)
        back = with_rounds(more, found.rounds)
    holds(not more.report.fresh and not more.report.dropped, more.report.summary)
    out = dataclasses.replace(c, model=more)()
    finite(each(out), "outputs of more rounds")
    for a, b in zip(answers(c, back), c.plain(), strict=True):
        holds(torch.equal(a, b), "rounds that came and went left something")
