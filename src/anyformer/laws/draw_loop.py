"""Loops over drawn stacks; see anyformer.laws.specs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from anyformer import spec as S

Pick = Callable[..., Any]


def draw_halt(pick: Pick) -> S.Halt | None:
    """Halting of any kind, or none."""
    return pick(
        None,
        S.Act(epsilon=0.05, cost=0.5, bias=0.0),
        S.Exit(share=pick(0.5, 0.9)),
        S.Route(cost=0.1),
        S.Route(choice="expert", future=True),
    )


def draw_loop(pick: Pick) -> S.Loop:
    """A loop of any kind, whatever the stack."""
    inject = pick("none", "add", "concat", "gated", "stable")
    drawn = pick("fixed", "fixed", "uniform", "poisson")
    return S.Loop(
        step=pick("none", "learned", "sinusoidal", "coordinates"),
        inject=inject,
        start="entered" if inject == "none" else pick("entered", "zeros"),
        drawn=drawn,
        mean=pick(None, 2) if drawn == "poisson" else None,
        most=None if drawn == "fixed" else pick(None, 1, 3),
        window=None if inject == "none" else pick(None, 1),
        halt=draw_halt(pick),
        keys=pick("own", "own", "first"),
    )


def _plainer(loop: S.Loop) -> Iterator[S.Loop]:
    """The loop, and what is left of it without more and more."""
    yield loop
    yield (loop := replace(loop, window=None, most=None))
    yield (loop := replace(loop, keys="own"))
    yield (loop := replace(loop, halt=None))
    bare = S.Loop(step=loop.step)
    yield bare


def _ending(model: S.Model) -> S.Model:
    """The model with nothing behind its loop, where it answers with words."""
    stack = model.stack
    if not isinstance(model.head, S.Vocabulary) or stack.lora or stack.reversible or stack.others:
        return model
    stack = replace(stack, depth=5, schedule=S.Looped(prelude=1, core=2, coda=0, loops=2))
    return replace(model, stack=stack)


def with_loop(pick: Pick, model: S.Model) -> S.Model:
    """The model, where its blocks run again perhaps with a loop that keeps the rules."""
    if not pick(True, True, False):
        return model
    for path in ("stack.loop", *(["encoder.stack.loop"] if model.encoder else [])):
        drawn = draw_loop(pick)
        model = _ending(model) if isinstance(drawn.halt, S.Exit) and path[0] == "s" else model
        for loop in _plainer(drawn):
            changed = S.override(model, path, loop)
            if not S.problems(changed):
                model = changed
                break
    return model
