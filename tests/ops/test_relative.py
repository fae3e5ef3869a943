"""Relative terms against loops, T5's buckets against two others, ALiBi's slopes."""

import math

import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position
from transformers.models.t5.modeling_t5 import T5Attention

import anyformer.ops.relative as relative_
from anyformer.ops.relative import (
    Relative,
    alibi_slopes,
    log_bucket,
    merge,
    scores,
    skew,
    t5_bucket,
)


@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (4, 1), (3, 5), (5, 3), (4, 4), (1, 1)])
def test_skew(queries, keys):
    x = torch.randn(2, queries, queries + keys - 1)
    want = torch.stack(
        [
            torch.stack([x[:, i, j - i + queries - 1] for j in range(keys)], -1)
            for i in range(queries)
        ],
        1,
    )
    assert torch.equal(skew(x, keys), want)


def naive(q, k, terms, first_q, first_k):
    """Every score's terms by themselves."""
    B, H, Q, _ = q.shape
    out = torch.zeros(B, H, Q, k.shape[2], dtype=q.dtype)
    for h in range(H):
        for i in range(Q):
            for j in range(k.shape[2]):
                away = first_k + j - first_q - i
                r = min(max(away, terms.low), terms.high) - terms.low
                if terms.bias is not None:
                    out[:, h, i, j] += terms.bias[h, r]
                if terms.query is not None:
                    out[:, h, i, j] += q[:, h, i] @ terms.query[h % len(terms.query), r]
                if terms.key is not None:
                    out[:, h, i, j] += k[:, h, j] @ terms.key[h % len(terms.key), r]
                if terms.slope is not None:
                    out[:, h, i, j] -= terms.slope[h] * abs(away)
    return out


def tables(low, high, which, heads=2, size=3, shared=False):
    rows, n = high - low + 1, 1 if shared else heads
    make = lambda *shape: torch.randn(*shape, dtype=torch.float64)
    return Relative(
        low,
        high,
        make(heads, rows) if "b" in which else None,
        make(n, rows, size) if "q" in which else None,
        make(n, rows, size) if "k" in which else None,
        make(heads) if "s" in which else None,
    )


@pytest.mark.parametrize("which", ["b", "q", "k", "s", "bqk", "bqks"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("low", "high", "first_q", "first_k", "queries", "keys"),
    [
        (-2, 2, 0, 0, 5, 5),
        (-9, 0, 4, 0, 3, 7),
        (-1, 1, 4, 2, 1, 5),
        (0, 3, 0, 6, 4, 1),
        (-9, 9, 2, 1, 4, 6),
    ],
)
def test_scores_equal_loops(which, shared, low, high, first_q, first_k, queries, keys):
    q = torch.randn(2, 2, queries, 3, dtype=torch.float64)
    k = torch.randn(2, 2, keys, 3, dtype=torch.float64)
    terms = tables(low, high, which, shared=shared)
    got = scores(q, k, terms, first_q, first_k)
    torch.testing.assert_close(
        got.expand(2, 2, queries, keys), naive(q, k, terms, first_q, first_k)
    )


@pytest.mark.parametrize("which", ["s", "bqks"])
def test_scores_of_a_query_that_only_the_device_places(which):
    q, k = (torch.randn(2, 2, n, 3, dtype=torch.float64) for n in (1, 7))
    terms = tables(-2, 1, which)
    got = scores(q, k, terms, torch.tensor([4]), 0)
    torch.testing.assert_close(got.expand(2, 2, 1, 7), naive(q, k, terms, 4, 0))


def test_a_slope_in_16_bits_meets_exact_distances():
    slope = torch.tensor([0.5], dtype=torch.bfloat16)
    level = Relative(0, 0, slope=slope).reach(-1001, 0).level()
    assert level is not None
    assert level[0, 0] == -500.5


@pytest.mark.parametrize(("queries", "keys"), [(3, 11), (1, 9), (5, 8)])
def test_tiles_of_the_key_side_join(monkeypatch, queries, keys):
    monkeypatch.setattr(relative_, "TILE", 4)
    q = torch.randn(2, 2, queries, 3, dtype=torch.float64)
    k = torch.randn(2, 2, keys, 3, dtype=torch.float64)
    terms = tables(-6, 2, "bqk")
    torch.testing.assert_close(scores(q, k, terms, 4, 1), naive(q, k, terms, 4, 1))


def test_channels_beyond_the_tables_are_left_out():
    q, k = (
        torch.randn(2, 2, 4, 5, dtype=torch.float64),
        torch.randn(2, 2, 4, 5, dtype=torch.float64),
    )
    terms = tables(-3, 3, "qk")
    torch.testing.assert_close(
        scores(q, k, terms, 0, 0), naive(q[..., :3], k[..., :3], terms, 0, 0)
    )


def test_reach_clips():
    terms = Relative(-1, 1, torch.tensor([[10.0, 20.0, 30.0]]))
    wide = terms.reach(-3, 2)
    assert wide.bias is not None
    assert wide.bias.tolist() == [[10.0, 10.0, 10.0, 20.0, 30.0, 30.0]]
    assert terms.reach(-1, 1) is terms
    assert terms.rows(-2, 2, torch.device("cpu")).tolist() == [0, 0, 1, 2, 2]


def test_merge_adds_what_all_add():
    q, k = (
        torch.randn(1, 2, 6, 3, dtype=torch.float64),
        torch.randn(1, 2, 6, 3, dtype=torch.float64),
    )
    many = [tables(-2, 2, "bs"), tables(-5, 0, "bq", shared=True), tables(-1, 4, "ks")]
    together = merge(many)
    assert together is not None
    assert (together.low, together.high) == (-5, 4)
    torch.testing.assert_close(
        scores(q, k, together, 0, 0), sum(naive(q, k, t, 0, 0) for t in many), check_dtype=False
    )
    sloped = merge([tables(0, 0, "s"), tables(3, 5, "b"), tables(0, 0, "s")])
    assert sloped is not None
    assert (sloped.low, sloped.high) == (3, 5)  # a slope needs no rows
    alone = merge([tables(0, 0, "s"), tables(0, 0, "s")])
    assert alone is not None
    assert [t.shape for t in alone.tensors()] == [(2,)]
    assert merge([]) is None
    assert merge(many[:1]) is many[0]


def scalar_bucket(distance, count, max_distance, bidirectional):
    """The bucket of one distance k - q, from the paper's words."""
    first = 0
    if bidirectional:
        count //= 2
        first = count if distance > 0 else 0
        away = abs(distance)
    else:
        away = max(0, -distance)
    exact = count // 2
    if away < exact:
        return first + away
    log = math.log(away / exact) / math.log(max_distance / exact)
    return first + min(exact + int(log * (count - exact) + 1e-6), count - 1)


DISTANCES = torch.arange(-300, 301)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("count", "far"), [(32, 128), (8, 20), (16, 64), (64, 256)])
def test_buckets_equal_a_scalar_version_and_transformers(count, far, bidirectional):
    got = t5_bucket(DISTANCES, count, far, bidirectional)
    assert got.tolist() == [scalar_bucket(d, count, far, bidirectional) for d in DISTANCES.tolist()]
    theirs = T5Attention._relative_position_bucket(DISTANCES, bidirectional, count, far)
    assert torch.equal(got, theirs)


def test_slopes():
    torch.testing.assert_close(alibi_slopes(8), 0.5 ** torch.arange(1.0, 9.0))
    twelve = [*(0.5 ** torch.arange(1.0, 9.0)), *(0.5 ** torch.tensor([0.5, 1.5, 2.5, 3.5]))]
    torch.testing.assert_close(alibi_slopes(12), torch.stack(twelve))
    assert alibi_slopes(1).tolist() == [2**-8]
    assert len(alibi_slopes(7)) == 7


@pytest.mark.parametrize(("count", "reach"), [(256, 512), (8, 24), (6, 100), (4, 5)])
def test_log_buckets_equal_those_of_transformers(count, reach):
    distance = torch.arange(-3 * reach, 3 * reach + 1)
    found = log_bucket(distance, count, reach)
    assert torch.equal(found, make_log_bucket_position(distance, count, reach).long())
    half = count // 2
    assert found[distance.abs() <= half].tolist() == list(range(-half, half + 1))
    assert log_bucket(torch.tensor([reach - 1, reach]), count, reach)[0] == count - 1
    assert (found[distance >= reach] >= count).all()
