"""Laws of recursion: unrolled it computes the same, and rounds come and go without a trace."""

from __future__ import annotations

import dataclasses
import logging

import torch

from anyformer import spec as S
from anyformer.checkpoint import untied, with_rounds
from anyformer.spec.faults import closes
from anyformer.spec.schedule import turns
from tests.laws.cases import all_same, case, each, pooled

logging.getLogger("anyformer").setLevel(logging.ERROR)  # which weights were converted


def unrolls(spec: S.Model) -> bool:
    """Whether blocks of the main stack run again, and a plain stack can compute it."""
    return any(turn for _, turn in turns(spec.stack)) and not closes(spec.stack)


@torch.no_grad()
def law_unrolled(spec: S.Model, seed: int) -> None:
    """A block for each application, made of what it shares, owns and adds, changes nothing."""
    c = case(S.override(spec, "stack.loop", None), seed)
    wanted = c()
    flat = untied(c.model)
    assert not flat.report.fresh and not flat.report.dropped, flat.report.summary
    found = dataclasses.replace(c, model=flat)()
    all_same([*each(found), *pooled(found)], [*each(wanted), *pooled(wanted)], "unrolled")


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
    more = with_rounds(c.model, found.rounds + 2)
    assert not more.report.fresh and not more.report.dropped, more.report.summary
    out = dataclasses.replace(c, model=more)()
    assert all(torch.isfinite(t).all() for t in each(out)), "more rounds are not finite"
    back = with_rounds(more, found.rounds)
    again, wanted = dataclasses.replace(c, model=back)(), c()
    for a, b in zip([*each(again), *pooled(again)], [*each(wanted), *pooled(wanted)], strict=True):
        assert torch.equal(a, b), "rounds that came and went left something"
