"""A part reads as the whole does."""

import numpy as np
import pytest

from anyformer.data.part import Part, held_out
from anyformer.data.rows import Rows
from anyformer.errors import InputError
from tests.data.test_samples import Held

WHOLE = Held(range(5), range(5, 9), [], range(9, 16))


@pytest.mark.parametrize("start", range(0, 15))
@pytest.mark.parametrize("stop", range(1, 17))
def test_a_part_is_a_slice(start, stop):
    if start >= stop:
        with pytest.raises(InputError, match="no part"):
            Part(WHOLE, start, stop)
        return
    part = Part(WHOLE, start, stop)
    assert part.tokens == stop - start == part.lengths.sum()
    assert len(part.lengths) == part.documents
    joined = [part.document(k) for k in range(part.documents)]
    assert np.concatenate(joined).tolist() == list(range(start, stop))
    assert [len(d) for d in joined] == part.lengths.tolist()
    for k, document in enumerate(joined):
        pieces = part.segments(k)
        assert np.concatenate([np.zeros(0, int), *pieces]).tolist() == document.tolist()
    assert part.slice(0, part.tokens).tolist() == list(range(start, stop))


def test_a_document_is_cut_only_where_none_ends_near():
    documents = Held(*[range(10 * i, 10 * i + 10) for i in range(50)])
    train, held = held_out(documents, 0.205)
    assert (train.tokens, held.tokens) == (400, 100)
    train, held = held_out(Held(range(100)), 0.1)
    assert (train.tokens, held.tokens) == (90, 10)
    assert not set(train.slice(0, 90)) & set(held.slice(0, 10))
    assert held.names(0) == WHOLE.names(0)
    with pytest.raises(InputError, match="can't be held out"):
        held_out(documents, 1.0)


def test_parts_make_rows():
    row = Rows(Part(WHOLE, 3, 11), 8, shuffle=False)[0]
    assert row["ids"].tolist() == list(range(3, 11))
    assert row["documents"].tolist() == [0, 0, 1, 1, 1, 1, 2, 2]
