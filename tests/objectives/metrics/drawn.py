"""Random tags, texts, classes and numbers that golden scores were computed of."""

import random

WORDS = "The cat, sat on 3.5-inch the mat. & &quot;quote&quot; don't (no) $5 10-20 a, b . é".split()
Sentences = list[list[str]]


def tags(seed: int, letters: str) -> tuple[Sentences, Sentences]:
    """Predicted and right tags of 4 sentences of 9 words, most of them the same."""
    draw = random.Random(seed)
    known = ["O", *(f"{letter}-{kind}" for letter in letters for kind in ("PER", "LOC"))]
    right = [[draw.choice(known) for _ in range(9)] for _ in range(4)]
    found = [[tag if draw.random() < 0.7 else draw.choice(known) for tag in s] for s in right]
    return found, right


def texts(seed: int) -> tuple[list[str], list[list[str]]]:
    """5 texts, each with two right ones, that share words."""
    draw = random.Random(seed)
    right = [
        [" ".join(draw.choices(WORDS, k=draw.randrange(8, 14))) for _ in "ab"] for _ in "12345"
    ]
    found = [" ".join(w for w in pair[0].split() if draw.random() < 0.8) for pair in right]
    return found, right


def classes(seed: int) -> tuple[list[str], list[str]]:
    """20 predicted classes and the right ones."""
    draw = random.Random(seed)
    right = draw.choices("abc", k=20)
    return [c if draw.random() < 0.6 else draw.choice("abc") for c in right], right


def numbers(seed: int) -> tuple[list[float], list[float]]:
    """20 numbers, with ties, and others near them."""
    draw = random.Random(seed)
    right = [float(draw.randrange(6)) for _ in range(20)]
    return [x + draw.randrange(3) for x in right], right
