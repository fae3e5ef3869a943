"""ROUGE: F1 of runs of words, and of the longest common subsequence (Lin 2004), 0 to 1."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from anyformer.objectives.metrics.labels import check_pairs, harmonic

WORD = re.compile(r"[a-z0-9]+")
Stem = Callable[[str], str]


def rouge(found: Sequence[str], right: Sequence[str], stem: Stem | None = None) -> dict[str, float]:
    """The means of ROUGE-1, -2 and -L of texts; words over 3 letters are stemmed if asked.

    Words are runs of a-z and 0-9 in lower case, as in the rouge-score package: other scripts have
    none.
    """
    check_pairs(found, right)
    sums = {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}
    for text, gold in zip(found, right, strict=True):
        a, b = words(text, stem), words(gold, stem)
        sums["rouge1"] += _runs(a, b, 1)
        sums["rouge2"] += _runs(a, b, 2)
        sums["rougeL"] += harmonic(common(a, b), len(a), len(b))
    return {name: value / len(right) for name, value in sums.items()}


def words(text: str, stem: Stem | None = None) -> list[str]:
    """The words of a text."""
    found = WORD.findall(text.lower())
    return found if stem is None else [stem(w) if len(w) > 3 else w for w in found]


def _runs(a: list[str], b: list[str], n: int) -> float:
    ours, theirs = (Counter(zip(*(x[i:] for i in range(n)), strict=False)) for x in (a, b))
    return harmonic((ours & theirs).total(), ours.total(), theirs.total())


def common(a: Sequence[str], b: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        left = 0  # of the row before
        for j, y in enumerate(b, 1):
            above, row[j] = row[j], left + 1 if x == y else max(row[j], row[j - 1])
            left = above
    return row[-1]
