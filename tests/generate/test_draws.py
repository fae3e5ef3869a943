"""Drawn tokens follow the distribution that a naive reference computes from the logits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from anyformer.generate import Sampling
from anyformer.generate.draw import Numbers, draw, uniform
from anyformer.generate.narrow import entmax, probabilities

DRAWS, VOCAB = 20_000, 12
ONE = {
    "temperature": 0.7,
    "top_k": 5,
    "top_p": 0.8,
    "min_p": 0.08,
    "typical_p": 0.7,
    "entmax_alpha": 1.5,
}
SINGLE = [{}, *({name: value} for name, value in ONE.items())]
SINGLE += [{"temperature": 1.9}, {"entmax_alpha": 2.0}, {"entmax_alpha": 1.2}, {"typical_p": 0.3}]
PAIRS = [dict(pair) for pair in itertools.combinations(ONE.items(), 2)]
ALL = [dict(list(ONE.items())[:n]) for n in (3, 4, 5, 6)]
CASES = [*SINGLE, *PAIRS, *ALL]


def logits(seed):
    """Numbers without ties."""
    return np.random.default_rng(seed).normal(size=VOCAB) * 1.7


def softmax(x):
    shares = [math.exp(v - max(x)) for v in x]
    return [s / sum(shares) for s in shares]


def reaching(x, order, share):
    """Tokens in an order until their probabilities reach a share."""
    p, kept, total = softmax(x), set(), 0.0
    for token in order:
        if total >= share:
            break
        kept.add(token)
        total += p[token]
    return [v if i in kept else -math.inf for i, v in enumerate(x)]


def by_entmax(x, alpha):
    """The threshold by bisection over all that it can be."""
    z = [(alpha - 1) * v for v in x]
    power = 1 / (alpha - 1)
    low, high = max(z) - 1, max(z)
    for _ in range(200):
        middle = (low + high) / 2
        total = sum(max(0.0, v - middle) ** power for v in z)
        low, high = (middle, high) if total > 1 else (low, middle)
    p = [max(0.0, v - low) ** power for v in z]
    return [v / sum(p) for v in p]


def reference(x, temperature=1.0, top_k=None, top_p=None, min_p=None, typical_p=None, **last):
    """The distribution, one option after the other."""
    x = [v / temperature for v in x]
    tokens = range(len(x))
    if top_k is not None:
        kept = sorted(tokens, key=lambda i: -x[i])[:top_k]
        x = [v if i in kept else -math.inf for i, v in enumerate(x)]
    if top_p is not None:
        x = reaching(x, sorted(tokens, key=lambda i: -x[i]), top_p)
    if min_p is not None:
        p = softmax(x)
        x = [v if p[i] >= min_p * max(p) else -math.inf for i, v in enumerate(x)]
    if typical_p is not None:
        p = softmax(x)
        entropy = -sum(v * math.log(v) for v in p if v > 0)
        cost = [abs(-math.log(v) - entropy) if v > 0 else math.inf for v in p]
        x = reaching(x, sorted(tokens, key=lambda i: cost[i]), typical_p)
    alpha = last.get("entmax_alpha")
    return softmax(x) if alpha is None else by_entmax(x, alpha)


def chi_square(counts, wanted):
    """The statistic, and what it is above with a probability of about one in 10,000."""
    real = [i for i, p in enumerate(wanted) if p > 0]
    assert all(counts[i] == 0 for i in range(len(wanted)) if i not in real)
    expected = [wanted[i] * sum(counts) for i in real]
    found = sum((counts[i] - e) ** 2 / e for i, e in zip(real, expected, strict=True))
    free = len(real) - 1
    bound = free * (1 - 2 / (9 * free) + 3.72 * math.sqrt(2 / (9 * free))) ** 3 if free else 1e-9
    return found, bound


@pytest.mark.parametrize("options", CASES, ids=lambda o: "+".join(o) or "plain")
@pytest.mark.parametrize("seed", range(2))
def test_draws_follow_the_reference(options, seed):
    x = logits(seed)
    wanted = reference(list(x), **options)
    found = probabilities(torch.tensor(x)[None], Sampling(do_sample=True, **options))
    assert np.allclose(found[0].numpy(), wanted, atol=1e-9)
    numbers = Numbers(None, DRAWS, 1, torch.device("cpu"))
    numbers.seeds[:] = np.arange(DRAWS) + seed * DRAWS
    drawn = draw(found.expand(DRAWS, -1), numbers.at(3))
    counts = drawn.bincount(minlength=VOCAB).tolist()
    statistic, bound = chi_square(counts, wanted)
    assert statistic <= bound


@pytest.mark.parametrize("axis", ["seed", "sequence", "step"])
def test_numbers_are_uniform_along_every_axis(axis):
    many, one = np.arange(DRAWS, dtype=np.uint64), np.uint64(7) * np.ones(1, np.uint64)
    given = {"seed": one, "sequence": one, "step": one} | {axis: many}
    found = uniform(**given)
    assert 0 <= found.min() and found.max() < 1
    assert len(np.unique(found)) == DRAWS
    statistic, bound = chi_square(np.histogram(found, 50, (0, 1))[0], [1 / 50] * 50)
    assert statistic <= bound
    pairs = np.histogram2d(found[:-1], found[1:], 8, [[0, 1], [0, 1]])[0].ravel()
    statistic, bound = chi_square(pairs, [1 / 64] * 64)
    assert statistic <= bound


def test_a_rows_numbers_do_not_depend_on_the_batch():
    few, many = (Numbers(5, n, 3, torch.device("cpu")) for n in (3, 12))
    for step in (0, 255, 256, 1000):
        assert torch.equal(few.at(step).repeat(4), many.at(step))
    assert len(many.at(0).unique()) == 3


def test_draws_never_take_what_has_no_probability():
    chance = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).expand(3, -1)
    numbers = torch.tensor([0.0, 0.5, 1 - 2.0**-52], dtype=torch.float64)
    assert draw(chance, numbers).tolist() == [1, 3, 3]


def test_entmax_sees_no_masked_token():
    x = torch.tensor([[1.0, -math.inf, 0.9, -50.0]], dtype=torch.float64)
    for alpha in (1.1, 1.5, 1.7, 2.0, 3.0):
        found = entmax(x, alpha)
        assert found[0, 1] == 0 and found[0, 0] > found[0, 2]
        assert torch.allclose(found.sum(), torch.ones((), dtype=torch.float64))
