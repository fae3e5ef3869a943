"""Sizes such that a variant has as many parameters, or costs as much, as the baseline."""

from __future__ import annotations

from collections.abc import Callable

from anyformer import spec as S
from anyformer.errors import SpecError, StudyError
from anyformer.model.count import Count, count
from anyformer.spec.walk import branches
from anyformer.study.nodes import Match

WIDEST = 64  # times the width that is begun with


def amount(spec: S.Model, on: str, length: int | None) -> float:
    """What a match is on: parameters, those outside tables, or FLOPs of a row."""
    found = count(spec, length)
    read: dict[str, Callable[[Count], int]] = {
        "parameters": lambda c: c.parameters,
        "non_embedding": lambda c: c.non_embedding,
        "flops": lambda c: c.flops,
    }
    return float(read[on](found))


def solve(
    match: Match,
    sized: Callable[[int], S.Model],
    start: int,
    step: int,
    wanted: float,
    length: int | None,
) -> S.Model:
    """The spec among sized(step), sized(2·step), … that has the wanted amount, nearly.

    What it has must grow with the size. `start` is the size that a variant has unmatched.
    """
    measure = lambda k: amount(sized(k * step), match.on, length)
    low, high = 1, max(start // step, 1)
    while measure(high) < wanted:
        low, high = high, 2 * high
        if high * step > WIDEST * max(start, step):
            break
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if measure(middle) <= wanted else (low, middle)
    best = min((low, high), key=lambda k: abs(measure(k) - wanted))
    found = measure(best)
    if abs(found / wanted - 1) > match.within:
        raise StudyError(
            f"no {match.by} gives {wanted:,.0f} {match.on.replace('_', '-')}: the nearest, "
            f"{best * step}, has {found:,.0f} ({found / wanted - 1:+.1%}, and match.within is "
            f"{match.within:.0%}). Allow more, or match by "
            f"{'feedforward' if match.by == 'width' else 'width'}"
        )
    return sized(best * step)


def with_hidden(spec: S.Model, hidden: int) -> S.Model:
    """The spec with every feed-forward so wide."""
    found = [at for at, _, _, leaf in branches(spec) if isinstance(leaf, S.FeedForward)]
    if not found:
        raise StudyError("there is no feed-forward to match by: match by width")
    for at in found:
        spec = S.override(spec, f"{at}.hidden", hidden)
    return spec


def hidden_of(spec: S.Model) -> int:
    """The width of the first feed-forward."""
    for _, model, _, leaf in branches(spec):
        if isinstance(leaf, S.FeedForward):
            return leaf.hidden or 4 * model.dim
    raise StudyError("there is no feed-forward to match by: match by width")


def width_step(spec: S.Model) -> int:
    """A step of widths that heads divide, and that leaves them an even number of channels."""
    heads = [leaf.heads for _, _, _, leaf in branches(spec) if isinstance(leaf, S.Attention)]
    free = all(
        leaf.head_dim is not None
        for _, _, _, leaf in branches(spec)
        if isinstance(leaf, S.Attention)
    )
    return 2 if free else 2 * max(heads, default=1)


def matched(
    match: Match,
    build: Callable[[int | None, int | None], S.Model],
    baseline: S.Model,
    length: int | None,
) -> S.Model:
    """A variant, which build(width, hidden) makes, with as much as the baseline has."""
    plain = build(None, None)
    wanted = amount(baseline, match.on, length)
    if abs(amount(plain, match.on, length) / wanted - 1) <= match.within / 3:
        return plain
    if match.by == "feedforward":
        return solve(match, lambda n: build(None, n), hidden_of(plain), 4, wanted, length)
    try:
        return solve(match, lambda n: build(n, None), plain.dim, width_step(plain), wanted, length)
    except SpecError as error:
        raise StudyError(f"the width can't be changed: {error}") from error
