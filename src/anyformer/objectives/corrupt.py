"""Corruption of rows of ids: pure functions of arrays and of a random generator.

Nothing here knows a tokenizer or a model. Places are drawn without loops over tokens, so that a
row of 512 takes a small part of a millisecond.

Letters: N tokens of a row, W words, k spans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from anyformer.errors import InputError

Rng = np.random.Generator
Lengths = Callable[[int, Rng], np.ndarray]  # so many lengths of spans, drawn
Spans = tuple[np.ndarray, np.ndarray]  # starts (k,) in order and lengths (k,), none overlap


# ---------------------------------------------------------------- how many, and where


def share(count: int, rate: float, rng: Rng) -> int:
    """`rate` of `count`, rounded up or down at random so that the mean is exact; one at least."""
    return min(count, max(1, int(rate * count + rng.random()))) if rate > 0 else 0


def singles(count: int, budget: int, rng: Rng) -> np.ndarray:
    """So many (budget,) of `count` places, in no order, each choice alike."""
    return rng.random(count).argpartition(budget - 1)[:budget]


def weighted(chances: Sequence[float]) -> Lengths:
    """Lengths 1, 2, … with the given chances, which need not sum to one."""
    edges = np.cumsum(chances) / np.sum(chances)
    return lambda count, rng: np.searchsorted(edges, rng.random(count), side="right") + 1


@cache
def ngrams(longest: int) -> Lengths:
    """Lengths up to `longest` with chances ∝ 1/n (ALBERT, arXiv:1909.11942)."""
    return weighted([1 / n for n in range(1, longest + 1)])


@cache
def geometric(p: float, longest: int) -> Lengths:
    """Geometric lengths, those beyond `longest` left out (SpanBERT, arXiv:1907.10529)."""
    return weighted([(1 - p) ** n for n in range(longest)])


@cache
def poisson(mean: float) -> Lengths:
    """Poisson lengths, none (0) among them (BART, arXiv:1910.13461)."""
    return lambda count, rng: rng.poisson(mean, count)


def filling(budget: int, lengths: Lengths, rng: Rng) -> np.ndarray:
    """Drawn lengths (k,) whose sum is `budget`: the last one drawn is shortened to fit."""
    if budget <= 0:
        return np.zeros(0, np.int64)
    found = lengths(budget // 2 + 8, rng).astype(np.int64)
    while found.sum() < budget:
        found = np.concatenate([found, lengths(budget + 8, rng)])
    total = np.cumsum(found)
    last = int(np.searchsorted(total, budget))
    found = found[: last + 1]
    found[last] -= total[last] - budget
    return rng.permutation(found)


def arranged(lengths: np.ndarray, total: int, rng: Rng) -> np.ndarray:
    """Starts (k,) of spans laid into `total` places in their order, each arrangement alike."""
    free = total - int(lengths.sum())
    before = np.sort(rng.choice(free + len(lengths), len(lengths), replace=False, shuffle=False))
    return before - np.arange(len(lengths)) + np.cumsum(lengths) - lengths


def in_tokens(offsets: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Spans:
    """Spans of words as spans of tokens; offsets (W + 1,) say where words begin."""
    first = offsets[starts]
    return first, offsets[starts + lengths] - first


def spans_of_words(offsets: np.ndarray, budget: int, lengths: Lengths | None, rng: Rng) -> Spans:
    """Spans of whole words, drawn at random until `budget` tokens are in them.

    `lengths` are in words, None for single ones. Those that would go beyond the budget lose words;
    where none fits, one word is taken all the same.
    """
    words = len(offsets) - 1
    wanted = min(words, budget)
    drawn = np.ones(wanted, np.int64) if lengths is None else filling(wanted, lengths, rng)
    starts = arranged(drawn, words, rng)
    if words == offsets[-1]:  # every word is a token
        return starts, drawn
    order = rng.permutation(len(drawn))
    starts, drawn = starts[order], drawn[order]
    total = np.cumsum(in_tokens(offsets, starts, drawn)[1])
    fits = int(np.searchsorted(total, budget, side="right"))
    left = budget - (int(total[fits - 1]) if fits else 0)
    kept = drawn.copy()
    kept[fits:] = 0
    for at in range(fits, len(drawn)):
        if left <= 0:
            break
        most = int(np.searchsorted(offsets, offsets[starts[at]] + left, side="right")) - 1
        kept[at] = min(int(drawn[at]), most - int(starts[at]))
        left -= int(offsets[starts[at] + kept[at]] - offsets[starts[at]])
    if not kept.any():
        kept[:1] = 1
    starts, kept = starts[kept > 0], kept[kept > 0]
    order = np.argsort(starts)
    return in_tokens(offsets, starts[order], kept[order])


def covered(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The places inside spans, in order."""
    total = int(lengths.sum())
    shift = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return np.arange(total) + shift


# ------------------------------------------------------------------------ masked tokens


def fates(count: int, mask: float, random: float, rng: Rng) -> np.ndarray:
    """What becomes of each chosen token (count,): 0 a mask, 1 another token, 2 itself."""
    drawn = rng.random(count)
    return (drawn >= mask).view(np.int8) + (drawn >= mask + random).view(np.int8)


# --------------------------------------------------------------------------- T5's spans


def noise_counts(length: int, rate: float, mean: float) -> tuple[int, int]:
    """How many tokens of a row of `length` are taken out, and in how many spans."""
    noise = min(max(round(length * rate), 1), length - 1)
    spans = max(round(noise / mean), 1)
    return noise, min(spans, noise, length - noise)


def segmented(items: int, parts: int, rng: Rng) -> np.ndarray:
    """`items` cut into so many parts of one at least, each way to do so alike: (parts,)."""
    cuts = np.sort(rng.choice(items - 1, parts - 1, replace=False, shuffle=False)) + 1
    return np.diff(cuts, prepend=0, append=items)


def noise_spans(length: int, rate: float, mean: float, rng: Rng) -> Spans:
    """The spans that T5 takes out of a row: exact counts, kept tokens in front of each one."""
    noise, spans = noise_counts(length, rate, mean)
    taken, kept = segmented(noise, spans, rng), segmented(length - noise, spans, rng)
    return np.cumsum(kept) + np.cumsum(taken) - taken, taken


def split_spans(
    ids: np.ndarray, spans: Spans, sentinels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A row with a sentinel for each span, and the spans with their sentinels in front."""
    starts, lengths = spans
    if len(starts) > len(sentinels):
        raise InputError(
            f"{len(starts)} spans need as many sentinels, and there are {len(sentinels)}: take "
            "shorter rows or longer spans, or add sentinel tokens to the tokenizer"
        )
    inside = covered(starts, lengths)
    marks = sentinels[: len(starts)]
    target = np.insert(ids[inside], np.cumsum(lengths) - lengths, marks)
    kept = np.ones(len(ids), bool)
    kept[inside] = False
    source = ids.copy()
    source[starts], kept[starts] = marks, True
    return source[kept], target


# ------------------------------------------------------------------------- BART's noise


def infilled(ids: np.ndarray, inside: np.ndarray, at: np.ndarray, mask: int) -> np.ndarray:
    """A row without the places `inside`, and with a mask at each place of `at` (up to N)."""
    kept = np.ones(len(ids), bool)
    kept[inside] = False
    before = np.concatenate([[0], np.cumsum(kept)])  # kept tokens in front of each place
    return np.insert(ids[kept], before[at], mask)


def permuted(ids: np.ndarray, ends: np.ndarray, group: np.ndarray, rng: Rng) -> np.ndarray:
    """A row with its sentences in random order; ends (N,) are True at their last tokens.

    Those of one group (N,), a document, stay together and in its place.
    """
    last = ends.copy()
    last[:-1] |= group[1:] != group[:-1]
    sentence = np.cumsum(last) - last  # (N,): the number of each token's sentence
    key = rng.random(int(sentence[-1]) + 1 if len(ids) else 0)
    return ids[np.lexsort((np.arange(len(ids)), key[sentence], group))]


def deleted(ids: np.ndarray, count: int, rng: Rng) -> np.ndarray:
    """A row without `count` of its tokens."""
    return np.delete(ids, rng.choice(len(ids), count, replace=False, shuffle=False))


def rotated(ids: np.ndarray, rng: Rng) -> np.ndarray:
    """A row that begins at one of its tokens, those before it at the end."""
    return np.roll(ids, -int(rng.integers(len(ids)))) if len(ids) else ids


# ------------------------------------------------------------------------ pairs of texts


def cut_pair(
    first: np.ndarray, second: np.ndarray, room: int, rng: Rng
) -> tuple[np.ndarray, np.ndarray]:
    """Two texts cut to `room` tokens: the longer loses them, each in front or behind (BERT)."""
    m, n = len(first), len(second)
    over = max(0, m + n - room)
    lean = min(over, abs(m - n))
    rest = over - lean
    off_first = (lean if m > n else 0) + rest // 2
    off_second = (lean if n >= m else 0) + rest - rest // 2
    return _trimmed(first, off_first, rng), _trimmed(second, off_second, rng)


def _trimmed(ids: np.ndarray, count: int, rng: Rng) -> np.ndarray:
    if not count:
        return ids
    front = int(rng.binomial(count, 0.5))
    return ids[front : len(ids) - (count - front)]
