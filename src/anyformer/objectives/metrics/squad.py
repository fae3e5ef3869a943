"""Exact match and F1 of answers, 0 to 100, as SQuAD's official scorers count them.

Version 1.1 (arXiv:1606.05250) has an answer to every question; in 2.0 (arXiv:1806.03822) an empty
text says that there is none.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from anyformer.objectives.metrics.labels import check_pairs, harmonic

MARKS = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)


def plain(text: str) -> str:
    """A text in lower case without marks and articles, its words apart by one space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(MARKS)).split())


def exact(found: str, right: str) -> float:
    """1 where two texts are the same but for case, marks and articles."""
    return float(plain(found) == plain(right))


def overlap(found: str, right: str, empty: bool = True) -> float:
    """F1 of two texts' words; with `empty` two texts without words agree, else they don't."""
    a, b = plain(found).split(), plain(right).split()
    if not a or not b:
        return float(empty and a == b)
    return harmonic((Counter(a) & Counter(b)).total(), len(a), len(b))


def squad(found: Sequence[str], right: Sequence[Sequence[str]]) -> dict[str, float]:
    """Scores of version 1.1: each text against the best of its right answers."""
    check_pairs(found, right)
    pairs = list(zip(found, right, strict=True))
    same = sum(max(exact(text, answer) for answer in answers) for text, answers in pairs)
    near = sum(max(overlap(text, a, empty=False) for a in answers) for text, answers in pairs)
    return {"exact": 100 * same / len(pairs), "f1": 100 * near / len(pairs)}


def squad2(
    found: Sequence[str],
    right: Sequence[Sequence[str]],
    doubts: Sequence[float] | None = None,
    threshold: float | None = None,
) -> dict[str, float]:
    """Scores of version 2.0, of all, of those with an answer and of those without.

    `doubts` say how sure it is that there is no answer: above `threshold` none is given; the best
    threshold in hindsight and the scores it would give are told too.
    """
    check_pairs(found, right)
    golds = [[a for a in answers if plain(a)] for answers in right]
    pairs = list(zip(found, golds, strict=True))
    scores = {
        "exact": [max(exact(text, a) for a in gold or [""]) for text, gold in pairs],
        "f1": [max(overlap(text, a) for a in gold or [""]) for text, gold in pairs],
    }
    told: dict[str, float] = {}
    for name, each in scores.items():
        kept = each
        if doubts is not None and threshold is not None:
            kept = [
                float(not gold) if doubt > threshold else score
                for doubt, score, gold in zip(doubts, each, golds, strict=True)
            ]
        told[name] = 100 * sum(kept) / len(kept)
        for group, there in (("answered", True), ("unanswerable", False)):
            some = [s for s, gold in zip(kept, golds, strict=True) if bool(gold) == there]
            if some:
                told[f"{name} {group}"] = 100 * sum(some) / len(some)
    if doubts is not None:
        for name, each in scores.items():
            best = _best(found, golds, doubts, each)
            told[f"best {name}"], told[f"best {name} threshold"] = best
    return told


def _best(
    found: Sequence[str],
    golds: Sequence[Sequence[str]],
    doubts: Sequence[float],
    scores: Sequence[float],
) -> tuple[float, float]:
    """The best score of any threshold, and the least one: answers are given by rising doubt."""
    now = best = float(sum(not gold for gold in golds))
    at = 0.0
    for i in sorted(range(len(found)), key=lambda i: doubts[i]):
        now += scores[i] if golds[i] else -1.0 if found[i] else 0.0
        if now > best:
            best, at = now, doubts[i]
    return 100 * best / len(found), at
