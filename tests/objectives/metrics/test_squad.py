"""SQuAD's scores against its published rules, written out here plainly and step by step."""

import collections
import random
import re
import string

import pytest

from anyformer.objectives.metrics import squad, squad2
from anyformer.objectives.metrics.squad import exact, overlap

WORDS = ["the", "a", "An", "Norman", "norman,", "10th", "century", "-", "U.S.", "of", "in", "!"]


def cleaned(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces."""
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def rule_f1(right: str, found: str, version: int) -> float:
    """The harmonic mean of the shares of common words."""
    a, b = cleaned(found).split(), cleaned(right).split()
    if version == 2 and (not a or not b):
        return float(a == b)
    same = sum((collections.Counter(a) & collections.Counter(b)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(a), same / len(b)
    return 2 * precision * recall / (precision + recall)


def drawn(seed: int, empty: bool) -> tuple[list[str], list[list[str]], list[float]]:
    """Answers found, right ones and doubts."""
    draw = random.Random(seed)
    text = lambda: " ".join(draw.choices(WORDS, k=draw.randrange(1, 5)))
    right = [[text() for _ in range(draw.randrange(1, 4))] for _ in range(30)]
    found = [draw.choice(answers) if draw.random() < 0.4 else text() for answers in right]
    if empty:
        right = [[] if draw.random() < 0.3 else answers for answers in right]
        found = ["" if draw.random() < 0.3 else text for text in found]
    return found, right, [round(draw.random(), 2) for _ in found]


@pytest.mark.parametrize("seed", range(5))
def test_version_1_takes_the_best_of_the_right_answers(seed):
    found, right, _ = drawn(seed, empty=False)
    same = [
        max(cleaned(t) == cleaned(a) for a in gold) for t, gold in zip(found, right, strict=True)
    ]
    near = [max(rule_f1(a, t, 1) for a in gold) for t, gold in zip(found, right, strict=True)]
    scores = squad(found, right)
    assert scores["exact"] == pytest.approx(100 * sum(same) / 30)
    assert scores["f1"] == pytest.approx(100 * sum(near) / 30)


@pytest.mark.parametrize("seed", range(5))
def test_version_2_and_its_best_threshold(seed):
    found, right, doubts = drawn(seed, empty=True)
    golds = [[a for a in answers if cleaned(a)] or [""] for answers in right]
    has = [gold != [""] for gold in golds]
    scores = squad2(found, right, doubts, threshold=0.5)
    for name, rule in (
        ("exact", lambda a, t: float(cleaned(a) == cleaned(t))),
        ("f1", lambda a, t: rule_f1(a, t, 2)),
    ):
        raw = [max(rule(a, t) for a in gold) for t, gold in zip(found, golds, strict=True)]
        kept = [float(not h) if d > 0.5 else s for s, h, d in zip(raw, has, doubts, strict=True)]
        assert scores[name] == pytest.approx(100 * sum(kept) / 30)
        some = [s for s, h in zip(kept, has, strict=True) if h]
        assert scores[f"{name} answered"] == pytest.approx(100 * sum(some) / len(some))
        now = best = sum(not h for h in has)
        at = 0.0
        for i in sorted(range(30), key=lambda i: doubts[i]):
            now += raw[i] if has[i] else (-1 if found[i] else 0)
            if now > best:
                best, at = now, doubts[i]
        assert scores[f"best {name}"] == pytest.approx(100 * best / 30)
        assert scores[f"best {name} threshold"] == at


@pytest.mark.parametrize(
    ("found", "right", "same", "near"),
    [
        ("The Normans!", "normans", 1.0, 1.0),
        ("in the 10th century", "10th century", 0.0, 0.8),
        ("", "", 1.0, 1.0),
        ("", "Normandy", 0.0, 0.0),
        ("the", "an", 1.0, 1.0),
        ("denmark", "Iceland", 0.0, 0.0),
    ],
)
def test_known_cases(found, right, same, near):
    assert (exact(found, right), overlap(found, right)) == (same, pytest.approx(near))


def test_without_doubts_no_threshold_is_told():
    scores = squad2(["", "b"], [[], ["b c"]])
    assert scores["exact"] == 50.0 and scores["exact unanswerable"] == 100.0
    assert not any(name.startswith("best") for name in scores)
