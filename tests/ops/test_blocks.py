"""BigBird's pattern against a dense mask written by loops, and its counts in every backend."""

import pytest
import torch

from anyformer.ops.attend import BACKENDS, attend, refusal
from anyformer.ops.blocks import Pattern
from anyformer.ops.mask import Padding
from anyformer.ops.plan import Plan

CPU = torch.device("cpu")
B, H, D = 2, 2, 8


def counted(pattern, length, ids=None):
    """How often each query counts each key (H, N, N), with drawn blocks ids (H, blocks, R)."""
    size, blocks = pattern.size, -(-length // pattern.size)
    times = torch.zeros(H, length, length, dtype=torch.float64)
    for h in range(H):
        for q in range(length):
            i = q // size
            if i in (0, blocks - 1):
                times[h, q] = 1
                continue
            drawn = [0] * pattern.random if ids is None else ids[h, i].tolist()
            for j in [*sorted({0, i - 1, i, i + 1, blocks - 1}), *drawn]:
                times[h, q, j * size : (j + 1) * size] += 1
    return times


def naive(q, k, v, times, keep):
    """Softmax over keys as often as they count; padded queries get zeros."""
    weights = (q @ k.mT * 0.3).exp() * times * keep[:, None, None]
    return weights / weights.sum(-1, keepdim=True) @ v * keep[:, None, :, None]


CASES = [(Pattern(2, 1, 99), 15), (Pattern(2, 2, 99), 19), (Pattern(3, 0, 99), 17)]
CASES = [(p, n, draws) for p, n in CASES for draws in (False, True)]


def built(pattern, length, draws):
    """Mask, mods and the dense counts."""
    if not draws:
        return *pattern.first(length), counted(pattern, length)
    mask, mods = pattern.drawn(length, H, 3, CPU)
    return mask, mods, counted(pattern, length, mask.right.ids if pattern.random else None)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("pattern", "length", "draws"), CASES)
def test_every_backend_sees_and_counts_as_loops_do(pattern, length, draws, name):
    mask, mods, times = built(pattern, length, draws)
    keep = torch.ones(B, length, dtype=torch.bool)
    keep[1, length // 2 :] = False
    plan = Plan(0.3, mask=mask & Padding(keep, queries=True, right=True), mods=mods)
    q, k, v = (torch.randn(B, H, length, D, dtype=torch.float64) for _ in range(3))
    if refusal(name, q, k, v, plan) is not None:
        assert name not in ("flex", "halved", "eager", "chunked")
        return
    torch.testing.assert_close(attend(q, k, v, plan, name), naive(q, k, v, times, keep))


@pytest.mark.parametrize("name", ["eager", "halved", "chunked", "flex"])
def test_persistent_keys_count_once(name):
    pattern, length = Pattern(2, 2, 99), 20
    mask, mods = pattern.first(length)
    q, k, v = (torch.randn(B, H, length + extra, D, dtype=torch.float64) for extra in (0, 3, 3))
    times = torch.cat([torch.ones(H, length, 3), counted(pattern, length)], -1)
    weights = (q @ k.mT * 0.3).exp() * times
    wanted = weights / weights.sum(-1, keepdim=True) @ v
    found = attend(q, k, v, Plan(0.3, mask=mask, mods=mods, lead=3), name)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("size", "random"), [(2, 1), (3, 2), (64, 3)])
def test_short_rows_are_full(size, random):
    most = (5 + 2 * random) * size
    pattern = Pattern(size, random, 4096)
    assert not pattern.sparse(most)
    assert pattern.sparse(most + 1)


def test_the_first_plan_counts_a_block_twice():
    pattern = Pattern(64, 3, 1024)
    mask, mods = pattern.drawn(1024, H, 0, CPU)
    assert len(mods) == 1
    index = [torch.arange(n).view(s) for n, s in ((1, (-1, 1, 1, 1)), (H, (1, -1, 1, 1)))]
    places = torch.arange(0, 1024, 64)
    index += [places.view(1, 1, -1, 1), places.view(1, 1, 1, -1)]
    found = mods[0](torch.zeros(1, H, 16, 16, dtype=torch.float64), *index)[0].exp()
    wanted = counted(pattern, 1024, mask.right.ids)[:, ::64, ::64]
    assert (wanted > 1).any()
    torch.testing.assert_close(found, wanted.clamp(min=1))


def test_draws_are_kept_and_follow_the_seed():
    pattern = Pattern(2, 1, 99)
    one, again, other = (pattern.drawn(40, H, seed, CPU)[0] for seed in (0, 0, 1))
    assert one is again
    assert not torch.equal(one.right.ids, other.right.ids)
