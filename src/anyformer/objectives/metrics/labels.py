"""Scores of classes and of numbers: shares from 0 to 1, and correlations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import Any, Literal

import numpy as np

from anyformer.errors import InputError

Average = Literal["micro", "macro", "binary"]


def check_pairs(found: Sequence[Any], right: Sequence[Any]) -> None:
    """Raise unless there are as many predictions as right answers, and some."""
    if len(found) != len(right) or len(right) == 0:
        raise InputError(
            f"{len(found)} predictions for {len(right)} records: scores need one for each, and some"
        )


def accuracy(found: Sequence[Any], right: Sequence[Any]) -> float:
    """The share of predictions that are right; sets of labels must be equal as a whole."""
    check_pairs(found, right)
    return sum(a == b for a, b in zip(found, right, strict=True)) / len(right)


def f1(
    found: Sequence[Any],
    right: Sequence[Any],
    average: Average = "macro",
    labels: Sequence[Hashable] | None = None,
    positive: Hashable = None,
) -> float:
    """The harmonic mean of precision and recall, of one label a record or of sets of them.

    micro: over all decisions; macro: the mean of the labels' own, those that `labels` names or
    that occur; binary: that of the label `positive`.
    """
    check_pairs(found, right)
    hits, said, true = Counter[Any](), Counter[Any](), Counter[Any]()
    for a, b in zip(map(_labels, found), map(_labels, right), strict=True):
        said.update(a)
        true.update(b)
        hits.update(a & b)
    if average == "micro":
        return harmonic(hits.total(), said.total(), true.total())
    if average == "binary":
        labels = [positive]
    known = sorted({*said, *true}, key=str) if labels is None else labels
    return sum(harmonic(hits[k], said[k], true[k]) for k in known) / max(len(known), 1)


def _labels(value: Any) -> set[Any]:
    several = isinstance(value, Collection) and not isinstance(value, str)
    return set(value) if several else {value}


def harmonic(hits: float, said: float, true: float) -> float:
    """F1 from what is right among what was said and what is true; 0 where there is nothing."""
    return 2 * hits / (said + true) if said + true else 0.0


def matthews(found: Sequence[Hashable], right: Sequence[Hashable]) -> float:
    """Matthews' correlation of any number of classes; 0 where one side has a single class."""
    check_pairs(found, right)
    total, said, true = len(right), Counter(found), Counter(right)
    agreed = sum(a == b for a, b in zip(found, right, strict=True))
    cross = sum(said[k] * true[k] for k in said)
    spread = [total**2 - sum(n * n for n in counts.values()) for counts in (said, true)]
    if not all(spread):
        return 0.0
    return (agreed * total - cross) / float(np.sqrt(float(spread[0]) * float(spread[1])))


def pearson(found: Sequence[float], right: Sequence[float]) -> float:
    """The correlation of two rows of numbers; 0 where one of them doesn't vary."""
    check_pairs(found, right)
    x, y = (np.asarray(v, np.float64) - np.mean(np.asarray(v, np.float64)) for v in (found, right))
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale else 0.0


def spearman(found: Sequence[float], right: Sequence[float]) -> float:
    """The correlation of ranks; equal numbers share the mean of theirs."""
    check_pairs(found, right)
    return pearson(_ranks(found), _ranks(right))


def _ranks(values: Sequence[float]) -> Any:
    _, place, count = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]
