"""Verdicts in words: what a comparison says, and what keeps it from saying more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from anyformer.study.judgement import GATE, LEVEL, SURE, Comparison, Gap, Judgement, Verdict
from anyformer.study.reading import Reading
from anyformer.study.results import Results


def pronounce(comparison: Comparison, judged: Judgement, results: Results) -> Comparison:
    """The comparison with its verdict and one sentence for it."""
    mine = judged.readings[comparison.variant]
    theirs = judged.readings[comparison.baseline]
    verdict, words = _verdict(comparison, judged, results)
    asides = [*_asides(mine), *(f"the baseline {aside}" for aside in _asides(theirs))]
    asides += _apart(comparison, judged)
    return replace(comparison, verdict=verdict, words="; ".join([words, *asides]))


def _verdict(c: Comparison, judged: Judgement, results: Results) -> tuple[Verdict, str]:
    if c.diverged:
        return "diverged", _diverged(c)
    doubts = list(_doubts(c, judged))
    if doubts:
        seen = f" (measured: {amount(c)})" if c.mean is not None else ""
        return "inconclusive", f"inconclusive: {'; '.join(doubts)}{seen}"
    assert c.mean is not None and c.corrected is not None  # else there is a doubt
    if c.corrected >= LEVEL:
        return "no evidence", f"no evidence of a difference ({amount(c)}, {p_words(c.corrected)})"
    good = (c.mean < 0) == results.lower
    size = amount(replace(c, mean=abs(c.mean)), signed=False)
    same = results.arm(c.variant).equal or results.match
    said: dict[tuple[bool, bool], Verdict] = {
        (True, True): "helps",
        (True, False): "hurts",
        (False, True): "may help",
        (False, False): "may hurt",
    }
    verdict = said[c.corrected < SURE, good]
    return verdict, f"{verdict} by {size} at equal {same} ({p_words(c.corrected)})"


def _diverged(c: Comparison) -> str:
    told = f"diverged ({seed_words(c.diverged)})"
    if c.lr is None:
        return f"{told}: no run ended well"
    told = f"{told} at its best learning rate {rate(c.lr)}"
    if not c.seeds:
        return told
    return f"{told}; without them {amount(c)} over {seed_words(c.seeds)}"


def _doubts(c: Comparison, judged: Judgement) -> Iterable[str]:
    """What keeps a comparison from a verdict."""
    theirs = judged.readings[c.baseline]
    if theirs.lost:
        yield f"the baseline diverged ({seed_words(theirs.lost)})"
    if len(c.seeds) < 2:
        yield f"{len(c.seeds)} paired seed{'s' * (len(c.seeds) != 1)}, at least 2 are needed"
    for who, reading in (("its", judged.readings[c.variant]), ("the baseline's", theirs)):
        if reading.edge and reading.lr is not None:
            way = "downwards" if reading.edge == "smallest" else "upwards"
            yield (
                f"{who} best learning rate {rate(reading.lr)} is the {reading.edge} of its grid: "
                f"extend it {way}"
            )
    if judged.gap is not None and not judged.gap.wide:
        yield _narrow(judged.gap)
    if len(c.seeds) >= 2 and c.p is None:
        yield "the difference is the same for every seed, so its noise isn't known"


def _narrow(gap: Gap) -> str:
    first, second = gap.anchors
    if gap.size is None or gap.spread is None:
        return f"the anchors {first} and {second} have too few runs to measure their gap"
    places = decimals(gap.spread)
    return (
        f"the anchors {first} and {second} differ by {abs(gap.size):.{places}f}, "
        f"under {GATE} times the seeds' spread ({gap.spread:.{places}f})"
    )


def _asides(reading: Reading) -> Iterable[str]:
    """What else a reader must know: runs that are missing, lost elsewhere or failed."""
    if reading.ended < reading.planned:
        yield f"so far {reading.ended} of {reading.planned} runs"
    elsewhere = {lr: seeds for lr, seeds in reading.diverged.items() if lr != reading.lr}
    if elsewhere and reading.lr is not None:
        yield f"diverged {_at(elsewhere)}, left out of the means"
    if reading.failed:
        yield f"failed {_at(reading.failed)}"


def _apart(c: Comparison, judged: Judgement) -> Iterable[str]:
    """Whose runs scatter so much that the noise of all arms together isn't theirs."""
    out = judged.pool.apart if judged.pool is not None else ()
    if c.p is not None and c.baseline in out:
        yield "the baseline's seeds scatter more than those of others, so by its own seeds alone"
    elif c.p is not None and c.variant in out:
        yield "its seeds scatter more than those of others, so by its own seeds alone"


def _at(seeds: Mapping[float, tuple[int, ...]]) -> str:
    return " and ".join(
        f"at learning rate {rate(lr)} ({seed_words(which)})" for lr, which in seeds.items()
    )


def seed_words(seeds: Iterable[int]) -> str:
    """Seeds as words: seed 1, seeds 1, 2."""
    names = [str(seed) for seed in seeds]
    return f"seed{'s' * (len(names) != 1)} {', '.join(names)}"


def rate(lr: float) -> str:
    """A learning rate as short as it can be written."""
    return f"{lr:.3g}"


def p_words(p: float) -> str:
    """A p-value in words."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def amount(c: Comparison, signed: bool = True) -> str:
    """A mean difference with half its interval, rounded to what the interval allows."""
    if c.mean is None:
        return "not known"
    places = decimals(max(c.half or 0, abs(c.mean) / (1000 if c.half else 10)))
    told = number(c.mean, places, signed)
    return told if c.half is None else f"{told} ± {c.half:.{places}f}"


def number(value: float, places: int, signed: bool = False) -> str:
    """A number with so many decimals and a true minus sign."""
    value = round(value, places) + 0.0  # no −0.00
    return f"{value:{'+' if signed else ''}.{places}f}".replace("-", "−")


def decimals(uncertainty: float) -> int:
    """How many decimals a value has that is known to this: one digit of it, two of 1x and 2x."""
    if not math.isfinite(uncertainty) or uncertainty <= 0:
        return 3
    power = math.floor(math.log10(uncertainty))
    leading = uncertainty / 10**power
    return min(8, max(0, -power + (leading < 2.95)))
