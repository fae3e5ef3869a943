"""Sizes such that a variant has as many parameters, or costs as much, as the baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Search:
    """What a match looks for: a size in steps from which sized(size) has the wanted amount.

    What it has must grow with the size. `start` is the size that a variant has unmatched.
    """

    match: Match
    sized: Callable[[int], S.Model]
    start: int
    step: int
    wanted: float
    length: int | None

    def off(self, k: int) -> float:
        """How far the spec of k steps is off, as a share of what is wanted."""
        return amount(self.sized(k * self.step), self.match.on, self.length) / self.wanted - 1

    def between(self) -> tuple[int, int]:
        """Neighbouring numbers of steps, one with too little and one with too much."""
        low, high = 1, max(self.start // self.step, 1)
        while self.off(high) < 0:
            low, high = high, 2 * high
            if high * self.step > WIDEST * max(self.start, self.step):
                break
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.off(middle) <= 0 else (low, middle)
        return low, high


def solve(search: Search) -> S.Model:
    """The spec among sized(step), sized(2·step), … that has the wanted amount, nearly."""
    best = min(search.between(), key=lambda k: abs(search.off(k)))
    match, off = search.match, search.off(best)
    if abs(off) > match.within:
        raise StudyError(
            f"no {match.by} gives {search.wanted:,.0f} {match.on.replace('_', '-')}: the nearest, "
            f"{best * search.step}, has {search.wanted * (1 + off):,.0f} ({off:+.1%}, and "
            f"match.within is {match.within:.0%}). Allow more, or match by "
            f"{'feedforward' if match.by == 'width' else 'width'}"
        )
    return search.sized(best * search.step)


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
    """A variant, which build(width, hidden) makes, with as much as the baseline has.

    Where heads leave widths too far apart, the feed-forward is made wider for the rest.
    """
    plain = build(None, None)
    wanted = amount(baseline, match.on, length)
    if abs(amount(plain, match.on, length) / wanted - 1) <= match.within / 3:
        return plain
    inner = lambda width: Search(
        match, lambda n: build(width, n), hidden_of(build(width, None)), 4, wanted, length
    )
    if match.by == "feedforward":
        return solve(inner(None))
    search = Search(match, lambda n: build(n, None), plain.dim, width_step(plain), wanted, length)
    try:
        low, _ = search.between()
        try:
            return solve(search)
        except StudyError as error:
            try:  # widths are far apart: the rest by the feed-forward of the next narrower one
                return solve(inner(low * search.step))
            except StudyError:
                raise error from None
    except SpecError as error:
        raise StudyError(f"the width can't be changed: {error}") from error
