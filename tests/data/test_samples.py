"""Orders that a seed fixes: rows, documents, records and mixtures by index."""

import numpy as np
import pytest

from anyformer.data.order import generator, mix, place, shuffled
from anyformer.data.rows import Rows
from anyformer.data.samples import BLOCK, Documents, Mixture, Records, Slice
from anyformer.errors import InputError


class Held:
    """Documents in memory, with what samples ask of shards."""

    segmented = True
    fingerprint = "held"

    def __init__(self, *documents):
        self.all = [np.asarray(d, np.int64) for d in documents]
        self.lengths = np.array([len(d) for d in self.all])
        self.tokens, self.documents = int(self.lengths.sum()), len(self.all)

    def slice(self, start, stop):
        return np.concatenate(self.all)[start:stop]

    def document(self, k):
        return self.all[k]

    def segments(self, k):
        return [self.all[k][:1], self.all[k][1:]]

    def names(self, k):
        return f"doc{k}" if k else None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 1021])
def test_an_order_has_every_place_once(size):
    assert sorted(shuffled(i, size, 5) for i in range(size)) == list(range(size))


def test_orders_differ_by_key_and_look_random():
    size = 2000
    orders = np.array([[shuffled(i, size, key) for i in range(size)] for key in range(8)])
    assert len({tuple(o) for o in orders}) == 8
    steps = [abs(np.corrcoef(o[1:], o[:-1])[0, 1]) for o in orders]
    assert max(abs(np.corrcoef(orders)[~np.eye(8, dtype=bool)])) < 0.1
    assert max(steps) < 0.1


def test_mixed_numbers_depend_on_each_and_on_their_order():
    assert len({mix(1, 2), mix(2, 1), mix(1), mix(1, 2, 0), mix(-1, 2)}) == 5
    assert generator(3, 4).integers(1 << 40) == generator(3, 4).integers(1 << 40)


def test_every_epoch_has_every_place():
    first = [place(i, 10, 1, True) for i in range(20)]
    assert [e for e, _ in first] == [0] * 10 + [1] * 10
    assert sorted(p for _, p in first[:10]) == sorted(p for _, p in first[10:]) == list(range(10))
    assert first[:10] != [(0, p) for _, p in first[10:]]


def test_rows_have_every_token_once_where_they_fill_the_data():
    rows = Rows(Held(range(7), range(7, 20), [], range(20, 24)), length=4, seed=3)
    for epoch in range(3):
        found = np.concatenate([rows[epoch * 6 + i]["ids"] for i in range(6)])
        assert sorted(found) == list(range(24))


def test_documents_of_a_row_are_told_apart():
    held = Held(range(3), [], range(3, 8))
    row = Rows(held, length=8, shuffle=False)[0]
    assert row["ids"].tolist() == list(range(8))
    assert row["documents"].tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    around = Rows(Held(range(10)), length=5, seed=0)
    crossing = [r for r in (around[i] for i in range(8)) if 9 in r["ids"][:-1]]
    assert crossing  # some row goes around the end: the beginning is another document there
    for row in crossing:
        at = row["ids"].tolist().index(9)
        assert row["documents"].tolist() == [0] * (at + 1) + [1] * (4 - at)


def test_rows_longer_than_the_data_are_refused():
    with pytest.raises(InputError, match="9 tokens, and one row needs 10"):
        Rows(Held(range(9)), length=10)


def test_documents_come_whole_with_segments_and_name():
    documents = Documents(Held([1, 2, 3], [4, 5]), seed=1)
    found = {documents[i]["place"]: documents[i] for i in range(2)}
    assert found[0]["ids"].tolist() == [1, 2, 3] and "name" not in found[0]
    assert [s.tolist() for s in found[1]["segments"]] == [[4], [5]] and found[1]["name"] == "doc1"


def test_records_and_slices():
    records = Records([{"n": i} for i in range(9)], seed=2)
    assert sorted(records[i]["n"] for i in range(9)) == list(range(9))
    held_out = Slice(records, 6, 9)
    assert (
        [held_out[i] for i in range(3)]
        == [records[i] for i in range(6, 9)]
        == [held_out[i] for i in range(3, 6)]
    )
    with pytest.raises(InputError, match="none"):
        Slice(records, 5, 10)
    with pytest.raises(InputError, match="no record"):
        Records([])


def test_a_mixture_keeps_its_shares_and_skips_nothing():
    parts = [Records([{"n": i, "of": k} for i in range(50)], shuffle=False) for k in range(3)]
    mixture = Mixture(list(zip(parts, (0.7, 0.2, 0.1), strict=True)), seed=4)
    found = [mixture[i] for i in range(2 * BLOCK)]
    for k, weight in enumerate((0.7, 0.2, 0.1)):
        own = [s["n"] for s in found if s["of"] == k]
        assert abs(len(own) / len(found) - weight) < 1e-3
        assert own == [i % 50 for i in range(len(own))]
    assert Mixture([(parts[0], 1.0), (parts[1], 1e-9)]).shares == [BLOCK - 1, 1]
    with pytest.raises(InputError, match="above zero"):
        Mixture([(parts[0], 0.0)])


def test_fingerprints_tell_what_is_read():
    rows, held = [{"x": 1, "y": np.arange(3)}], Held(range(12))
    marks = [
        Records(rows).fingerprint,
        Records(rows, seed=1).fingerprint,
        Records([{"x": 1, "y": np.arange(1, 4)}]).fingerprint,
        Rows(held, 3).fingerprint,
        Rows(held, 4).fingerprint,
        Documents(held).fingerprint,
        Mixture([(Records(rows), 1.0)]).fingerprint,
        Slice(Records(rows), 0, 1).fingerprint,
    ]
    assert len(set(marks)) == len(marks)
    assert Records(list(rows)).fingerprint == marks[0]
