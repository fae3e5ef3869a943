"""Corruption as pure functions: exact counts, laws of reconstruction, statistics on 1M tokens."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyformer.errors import InputError
from anyformer.objectives import corrupt
from tests.objectives.samples import rng

MILLION = 1_000_000


def close(found, wanted, count, spread):
    """Within five standard errors of what `count` draws with a spread give."""
    return abs(found - wanted) < 5 * spread / np.sqrt(count)


@given(st.integers(1, 3000), st.floats(0.001, 1.0), st.integers(0, 99))
def test_a_share_is_within_one_of_its_rate(count, rate, seed):
    found = corrupt.share(count, rate, rng(seed))
    assert 1 <= found <= count and abs(found - max(1, rate * count)) <= 1


def test_single_places_are_alike_and_none_comes_twice():
    rng = np.random.default_rng(0)
    found = np.stack([corrupt.singles(7, 3, rng) for _ in range(7000)])
    assert (np.diff(np.sort(found), axis=1) > 0).all()
    assert np.bincount(found.ravel()) == pytest.approx([3000] * 7, rel=0.06)
    assert sorted(corrupt.singles(4, 4, rng)) == [0, 1, 2, 3]


def test_fates_have_their_shares():
    found = corrupt.fates(40_000, 0.8, 0.15, np.random.default_rng(0))
    assert np.bincount(found) / 40_000 == pytest.approx([0.8, 0.15, 0.05], abs=0.01)


def test_a_share_has_the_right_mean():
    found = [corrupt.share(13, 0.15, rng(0, i)) for i in range(20_000)]
    assert set(found) == {1, 2} and close(np.mean(found), 1.95, 20_000, 0.3)
    assert corrupt.share(9, 0.0, rng()) == 0


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 50), st.integers(0, 99))
def test_arranged_spans_keep_their_order_and_never_overlap(lengths, free, seed):
    lengths = np.array(lengths, np.int64)
    total = int(lengths.sum()) + free
    starts = corrupt.arranged(lengths, total, rng(seed))
    assert len(starts) == len(lengths)
    ends = starts + lengths
    assert (starts[1:] >= ends[:-1]).all() and (ends <= total).all() and (starts >= 0).all()
    places = corrupt.covered(starts, lengths)
    assert len(set(places)) == len(places) == lengths.sum()


def test_every_arrangement_is_alike():
    seen = {}
    for i in range(6000):
        at = tuple(corrupt.arranged(np.array([2, 1]), 5, rng(1, i)))
        seen[at] = seen.get(at, 0) + 1
    assert len(seen) == 6 and all(abs(n - 1000) < 150 for n in seen.values())


@given(st.integers(0, 400), st.integers(1, 5), st.integers(0, 99))
def test_drawn_lengths_fill_their_budget(budget, longest, seed):
    found = corrupt.filling(budget, corrupt.ngrams(longest), rng(seed))
    assert found.sum() == budget and (found > 0).all() and (found <= longest).all()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=40), st.integers(0, 99), st.data())
def test_spans_of_words_are_whole_and_within_the_budget(words, seed, data):
    offsets = np.cumsum([0, *words])
    budget = data.draw(st.integers(1, int(offsets[-1])))
    lengths = data.draw(st.sampled_from([None, corrupt.ngrams(3), corrupt.geometric(0.2, 10)]))
    starts, sizes = corrupt.spans_of_words(offsets, budget, lengths, rng(seed))
    assert np.isin(starts, offsets).all() and np.isin(starts + sizes, offsets).all()
    assert (sizes > 0).all() and len(starts) > 0
    assert sizes.sum() <= budget or (len(starts) == 1 and sizes[0] in words)
    assert (starts[1:] >= (starts + sizes)[:-1]).all()
    if lengths is None and len(starts) < len(words):  # no word that is left would have fitted
        left = budget - sizes.sum()
        others = sorted(
            set(zip(offsets[:-1], words, strict=True)) - set(zip(starts, sizes, strict=True))
        )
        assert left == 0 or budget < len(words) or all(size > left for _, size in others)


def test_ngrams_have_chances_that_fall_with_their_length():
    found = corrupt.ngrams(3)(MILLION, rng())
    for n, chance in ((1, 6 / 11), (2, 3 / 11), (3, 2 / 11)):
        assert close((found == n).mean(), chance, MILLION, 0.5)


def test_geometric_lengths_are_those_of_spanbert():
    found = corrupt.geometric(0.2, 10)(MILLION, rng())
    chances = 0.2 * 0.8 ** np.arange(10)
    chances /= chances.sum()
    shares = np.bincount(found, minlength=11)[1:] / MILLION
    assert found.max() == 10 and np.abs(shares - chances).max() < 0.0025
    assert found.mean() == pytest.approx(3.8, abs=0.02)  # the paper's figure


def test_poisson_lengths():
    found = corrupt.poisson(3.0)(MILLION, rng())
    assert close(found.mean(), 3.0, MILLION, 3**0.5) and close(found.var(), 3.0, MILLION, 4.6)
    assert close((found == 0).mean(), np.exp(-3), MILLION, 0.22)


# --------------------------------------------------------------------------- T5's spans


@pytest.mark.parametrize(
    ("length", "noise", "spans"), [(568, 85, 28), (2, 1, 1), (3, 1, 1), (10, 2, 1), (512, 77, 26)]
)
def test_noise_counts_are_t5s(length, noise, spans):
    assert corrupt.noise_counts(length, 0.15, 3.0) == (noise, spans)


@given(st.integers(2, 700), st.floats(0.0, 1.0), st.floats(1.0, 9.0), st.integers(0, 99))
def test_source_and_target_rebuild_a_row(length, rate, mean, seed):
    ids, sentinels = np.arange(length), -1 - np.arange(800)
    spans = corrupt.noise_spans(length, rate, mean, rng(seed))
    noise, count = corrupt.noise_counts(length, rate, mean)
    source, target = corrupt.split_spans(ids, spans, sentinels)
    assert len(source) == length - noise + count and len(target) == noise + count
    assert source[0] >= 0 and target[0] == -1  # kept tokens come first
    assert list(source[source < 0]) == list(target[target < 0]) == list(sentinels[:count])
    parts = np.split(target, np.flatnonzero(target < 0))[1:]
    taken = {int(part[0]): list(part[1:]) for part in parts}
    assert all(taken.values())  # no span is empty
    rebuilt = [id for s in source for id in (taken[int(s)] if s < 0 else [s])]
    assert rebuilt == list(ids)


def test_every_segmentation_is_alike():
    seen = {}
    for i in range(6000):
        cut = tuple(corrupt.segmented(5, 3, rng(2, i)))
        seen[cut] = seen.get(cut, 0) + 1
    assert len(seen) == 6 and all(abs(n - 1000) < 150 for n in seen.values())


def test_t5_spans_have_their_mean_on_a_million_tokens():
    rows = MILLION // 568
    lengths = [corrupt.noise_spans(568, 0.15, 3.0, rng(0, i))[1] for i in range(rows)]
    assert {int(row.sum()) for row in lengths} == {85} and {len(row) for row in lengths} == {28}
    assert np.concatenate(lengths).mean() == pytest.approx(85 / 28)


def test_too_few_sentinels_say_what_to_do():
    spans = corrupt.noise_spans(100, 0.5, 1.0, rng())
    with pytest.raises(InputError, match="50 spans need as many sentinels, and there are 9"):
        corrupt.split_spans(np.arange(100), spans, np.arange(9))


# ------------------------------------------------------------------------- BART's noise


@given(st.integers(0, 60), st.floats(0.0, 1.0), st.integers(0, 99))
def test_infilling_keeps_what_is_outside_in_order(length, rate, seed):
    ids, draw = np.arange(length), rng(seed)
    lengths = corrupt.filling(int(rate * length), corrupt.poisson(3.0), draw)
    starts = corrupt.arranged(lengths, length, draw)
    found = corrupt.infilled(ids, corrupt.covered(starts, lengths), starts, -1)
    assert (found == -1).sum() == len(lengths)
    assert list(found[found >= 0]) == sorted(
        set(range(length)) - set(corrupt.covered(starts, lengths))
    )
    # a mask stands where its span was: what follows it is what followed the span
    rest = iter(zip(starts, lengths, strict=True))
    rebuilt = []
    for id in found:
        start, size = next(rest) if id < 0 else (id, 1)
        rebuilt += range(start, start + size)
    assert rebuilt == list(ids)


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 4), st.integers(0, 99))
def test_permuted_sentences_stay_whole_and_in_their_document(ends, documents, seed):
    ends = np.array(ends, bool)
    group = np.sort(rng(seed, 1).integers(documents, size=len(ends)))
    ids = np.arange(len(ends))
    found = corrupt.permuted(ids, ends, group, rng(seed))
    assert sorted(found) == list(ids) and (group[found] == group).all()
    last = ends | np.append(group[1:] != group[:-1], True)[: len(ends)]
    for before, after in pairwise(found):
        assert last[before] or after == before + 1


def test_sentences_are_permuted_uniformly():
    ids, ends = np.arange(6), np.array([0, 1, 0, 1, 0, 1], bool)
    seen = [tuple(corrupt.permuted(ids, ends, ids * 0, rng(0, i))) for i in range(6000)]
    assert len(set(seen)) == 6 and all(abs(seen.count(s) - 1000) < 150 for s in set(seen))


def test_deletion_and_rotation():
    ids = np.arange(20)
    left = corrupt.deleted(ids, 7, rng())
    assert len(left) == 13 and (np.diff(left) > 0).all()
    turned = [corrupt.rotated(ids, rng(0, i)) for i in range(200)]
    assert {int(t[0]) for t in turned} == set(ids)
    assert all((np.roll(t, int(t[0])) == ids).all() for t in turned)
    assert len(corrupt.rotated(ids[:0], rng())) == 0


# ------------------------------------------------------------------------ pairs of texts


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 70), st.integers(0, 99))
def test_a_pair_is_cut_as_one_token_at_a_time_would(m, n, room, seed):
    first, second = corrupt.cut_pair(np.arange(m), np.arange(n), room, rng(seed))
    a, b = m, n
    while a + b > room:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    assert (len(first), len(second)) == (a, b)
    assert (np.diff(first) == 1).all() and (np.diff(second) == 1).all()


def test_a_pair_loses_tokens_in_front_and_behind_alike():
    fronts = [
        corrupt.cut_pair(np.arange(40), np.arange(3), 23, rng(0, i))[0][0] for i in range(999)
    ]
    assert close(np.mean(fronts), 10, 999, 5**0.5)
