"""Slower rotary positions: what each way does to fast and slow turns."""

import math

import pytest
import torch

from anyformer import spec as S
from anyformer.ops.rotary import angles
from anyformer.parts.rotary import gain_of, stretch_of, turned

DIMS, LENGTH = 32, 100


def speeds(scaling, theta=10000.0):
    rotary = S.Rotary(theta=theta, scaling=scaling)
    return angles(torch.ones(1), DIMS, theta, stretch_of(rotary, DIMS))[0]


PLAIN = speeds(None)
TURNS = PLAIN * LENGTH / (2 * math.pi)


def test_linear_slows_every_turn():
    torch.testing.assert_close(speeds(S.Linear(factor=4.0)), PLAIN / 4)


def test_llama3_slows_slow_turns_alone():
    found = speeds(S.Llama3(factor=8.0, length=LENGTH, low=1.0, high=4.0))
    slow, fast = TURNS < 1, TURNS > 4
    between = ~slow & ~fast
    assert slow.any() and fast.any() and between.any()
    torch.testing.assert_close(found[slow], PLAIN[slow] / 8)
    torch.testing.assert_close(found[fast], PLAIN[fast])
    assert ((found < PLAIN) & (found > PLAIN / 8))[between].all()


@pytest.mark.parametrize("whole", [True, False])
def test_yarn_slows_slow_turns_alone(whole):
    found = speeds(S.Yarn(factor=8.0, length=LENGTH, fast=8.0, slow=1.0, whole=whole))
    torch.testing.assert_close(found[:2], PLAIN[:2])
    torch.testing.assert_close(found[-4:], PLAIN[-4:] / 8)
    assert (found.diff() < 0).all()


def test_yarn_over_a_length_that_nothing_turns_in_is_finite():
    assert speeds(S.Yarn(factor=8.0, length=1)).isfinite().all()


def test_the_gain_of_yarn():
    assert gain_of(S.Linear(factor=2.0)) == gain_of(None) == 1.0
    assert gain_of(S.Yarn(factor=0.5)) == 1.0
    assert gain_of(S.Yarn(factor=4.0)) == pytest.approx(0.1 * math.log(4) + 1)
    assert gain_of(S.Yarn(factor=4.0, gain=0.7)) == 0.7


@pytest.mark.parametrize("layout", ["halves", "pairs"])
def test_scores_depend_on_the_distance_and_the_gain(layout):
    spec = S.Rotary(scaling=S.Yarn(factor=4.0, length=20, gain=0.7), layout=layout)
    q, k = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)
    at = torch.arange(5)[None]
    a, b = (turned(spec, q, k, at + start) for start in (0, 7))
    scores = lambda pair: pair[0] @ pair[1].mT
    torch.testing.assert_close(scores(a), scores(b), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(a[0].norm(dim=-1), 0.7 * q.norm(dim=-1))


def test_queries_are_the_last_of_the_keys():
    spec = S.Rotary(dims=4, scaling=S.Linear(factor=2.0))
    x = torch.randn(1, 2, 6, 8)
    q, k = turned(spec, x[:, :, 4:], x, torch.arange(6)[None])
    torch.testing.assert_close(q, k[:, :, 4:])
    assert torch.equal(k[..., 4:], x[..., 4:])
