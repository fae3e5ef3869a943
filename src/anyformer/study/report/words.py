"""The sentences of a report: its answer in one paragraph, its progress, how to read it."""

from __future__ import annotations

from collections.abc import Iterable

from anyformer.study.judgement import Comparison, Judgement
from anyformer.study.reading import diverged
from anyformer.study.results import Results
from anyformer.study.verdicts import amount, p_words, seed_words

GUIDE = (
    "Within a seed all variants see the same batches in the same order, so a variant is compared "
    "with the baseline seed by seed, each at its own best learning rate (the rate with the best "
    "mean final score over seeds; a rate at which a seed diverged isn't taken while there is "
    "another).",
    "± and intervals are 95\N{NO-BREAK SPACE}% intervals of the mean paired difference after "
    "Student's t. The noise that a difference is held against is measured on all variants "
    "together: what is left of the final scores after the means of variants and of seeds, with "
    "(variants − 1)(seeds − 1) degrees of freedom, but never less than the variant's own "
    "differences show. A variant whose seeds scatter more than such variants would (Fisher's F; "
    "by chance in one study of twenty) is taken out and judged by its own seeds alone, and its "
    "sentence says so. The p-value of its own seeds is that of the plain paired t-test, which "
    "knows no other variant and isn't corrected.",
    "p-values are two-sided and corrected over all variants after Holm. “Helps” and “hurts” need "
    "one under 0.01, so that among variants that change nothing at most one study in a hundred "
    "names any; from there to 0.05 it is “may help” or “may hurt”, which more seeds would settle. "
    "An interval is not corrected: it may leave out nought where the corrected p-value sees no "
    "evidence.",
    "“No evidence of a difference” doesn’t say that there is none: the interval says which "
    "differences the study leaves possible.",
    "“Inconclusive” means that the study can’t say: the best learning rate of one side lies at an "
    "end of its grid, so more tuning might change the order; or the two anchors, between which "
    "others are measured, differ by less than 5 times the seeds’ spread; or fewer than two seeds "
    "can be paired.",
    "Runs that diverged are named with their seed and are in no mean. Verdicts of an unfinished "
    "study say how many runs they rest on; looking often and stopping at a good moment makes "
    "p-values too small.",
    "“Applied” parameters count a weight once for each time that it is used in a pass. “Recovered” "
    "is the share of the gap from the first anchor to the second that a variant closes.",
)


def progress(results: Results) -> str:
    """How far the study is."""
    runs = results.outcomes
    lost = sum(diverged(run, results.score) for run in runs)
    done = sum(run.status == "done" for run in runs)
    ended = sum(run.status in ("done", "diverged", "failed") for run in runs)
    counts = {"diverged": lost, "failed": sum(run.status == "failed" for run in runs)}
    told = [f"{n} {word}" for word, n in counts.items() if n]
    grid = f"{len(results.arms)} variants, {_count(len(results.seeds), 'seed')}, "
    grid += _count(len(results.rates), "learning rate")
    if ended == len(runs):
        return f"{grid}. {', '.join([f'All {len(runs)} runs have ended', *told])}."
    waiting = len(runs) - ended
    return (
        f"{grid}. Not finished: {done} of {len(runs)} runs are done, "
        f"{', '.join([*told, f'{waiting} to come'])}. Verdicts may change."
    )


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'s' * (n != 1)}"


def answer(results: Results, judged: Judgement) -> str:
    """The study's answer in one paragraph."""
    found = judged.comparisons
    if not found:
        return "There is nothing to compare: the study has the baseline alone."
    better = "lower" if results.lower else "higher"
    head = f"Against {results.baseline}, at equal {results.match}, on {results.score} "
    head += f"({better} is better): "
    parts = [part for part in (_said(found, kind) for kind in _ORDER) if part]
    return head + "; ".join(parts) + "." + _noise(judged)


_ORDER = ("helps", "hurts", "may help", "may hurt", "no evidence", "inconclusive", "diverged")


def _said(found: Iterable[Comparison], kind: str) -> str:
    chosen = sorted((c for c in found if c.verdict == kind), key=lambda c: -abs(c.mean or 0))
    if not chosen:
        return ""
    if kind in _ORDER[:4]:
        return "; ".join(
            f"{c.variant} {kind} by {amount(c, signed=False).lstrip('−')} "
            f"({p_words(c.corrected or 0)})"
            for c in chosen
        )
    names = ", ".join(
        f"{c.variant} ({seed_words(c.diverged)})" if kind == "diverged" else c.variant
        for c in chosen
    )
    told = {
        "no evidence": "no evidence of a difference for",
        "inconclusive": "inconclusive for",
        "diverged": "diverged:",
    }
    return f"{told[kind]} {names}"


def _noise(judged: Judgement) -> str:
    noise = judged.noise
    told = "" if noise.sd is None else (
        f" Noise floor: the baseline’s score has a standard deviation of {noise.sd:.2g} "
        f"over {noise.seeds} seeds"
    )  # fmt: skip
    if noise.repeats is not None:
        told += (
            f"{',' if told else ' Runs'} and repeats of the same run differ by {noise.repeats:.2g}"
        )
    return f"{told}." if told else ""
