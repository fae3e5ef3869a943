"""Masks against small matrices written by hand; spans, composition, equality."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from anyformer.ops.mask import (
    And,
    Blocks,
    Causal,
    Documents,
    Drawn,
    Or,
    Padding,
    Prefix,
    Window,
    both,
    parts,
)


def seen(mask, batch=1, heads=1, queries=4, keys=4, start=0):
    """The whole mask, (B, H, Q, K)."""
    index = (
        torch.arange(batch).view(-1, 1, 1, 1),
        torch.arange(heads).view(1, -1, 1, 1),
        torch.arange(start, start + queries).view(1, 1, -1, 1),
        torch.arange(keys).view(1, 1, 1, -1),
    )
    return mask(*index).expand(batch, heads, queries, keys)


def matrix(*rows):
    return torch.tensor([[c == "x" for c in row] for row in rows])


def test_causal():
    want = matrix("x...", "xx..", "xxx.", "xxxx")
    assert torch.equal(seen(Causal())[0, 0], want)
    assert torch.equal(seen(Causal(), queries=2, start=2)[0, 0], want[2:])


def test_window():
    assert torch.equal(seen(Window(2))[0, 0], matrix("xx..", "xxx.", ".xxx", "..xx"))
    assert torch.equal(seen(Causal() & Window(2))[0, 0], matrix("x...", "xx..", ".xx.", "..xx"))
    assert torch.equal(seen(Window(1))[0, 0], torch.eye(4, dtype=torch.bool))
    assert seen(Window(9)).all()


def test_padding():
    keep = torch.tensor([[True, True, False, False], [False, True, True, True]])
    mask = seen(Padding(keep), batch=2)
    assert torch.equal(mask[0, 0], matrix(*["xx.."] * 4))
    assert torch.equal(mask[1, 0], matrix(*[".xxx"] * 4))


def test_documents():
    mask = Documents(torch.tensor([[0, 0, 1, 1], [5, 6, 6, 6]]))
    assert torch.equal(seen(mask, batch=2)[0, 0], matrix("xx..", "xx..", "..xx", "..xx"))
    assert torch.equal(seen(mask, batch=2)[1, 0], matrix("x...", ".xxx", ".xxx", ".xxx"))
    assert torch.equal(seen(Causal() & mask, batch=2)[1, 0], matrix("x...", ".x..", ".xx.", ".xxx"))


def test_prefix():
    mask = Causal() | Prefix(torch.tensor([2, 0]))
    assert torch.equal(seen(mask, batch=2)[0, 0], matrix("xx..", "xx..", "xxx.", "xxxx"))
    assert torch.equal(seen(mask, batch=2)[1, 0], seen(Causal())[0, 0])


def test_blocks():
    mask = Blocks(size=1, count=6)
    want = matrix("xxxxxx", "xxx..x", "xxxx.x", "x.xxxx", "x..xxx", "xxxxxx")
    assert torch.equal(seen(mask, queries=6, keys=6)[0, 0], want)
    wide = Blocks(size=2, count=6)
    doubled = want.repeat_interleave(2, 0).repeat_interleave(2, 1)
    assert torch.equal(seen(wide, queries=12, keys=12)[0, 0], doubled)
    assert torch.equal(seen(wide, queries=11, keys=11)[0, 0], doubled[:11, :11])


def test_drawn_blocks():
    ids = torch.tensor([[[-1, -1], [2, 2], [0, 1]], [[-1, -1], [0, 2], [-1, 1]]])
    mask = Drawn(size=2, ids=ids)
    found = seen(mask, heads=2, queries=6, keys=6)
    one = matrix("......", "......", "....xx", "....xx", "xxxx..", "xxxx..")
    other = matrix("......", "......", "xx..xx", "xx..xx", "..xx..", "..xx..")
    assert torch.equal(found[0, 0], one)
    assert torch.equal(found[0, 1], other)
    assert mask.times(*map(torch.tensor, (0, 2, 5))) == 2
    both_kinds = Blocks(size=2, count=3) | mask
    assert seen(both_kinds, heads=2, queries=6, keys=6).all()


def test_composition():
    a, b = Causal(), Padding(torch.tensor([[True, False, True, False]]))
    assert torch.equal(seen(a & b), seen(a) & seen(b))
    assert torch.equal(seen(a | b), seen(a) | seen(b))
    assert parts(a & b & Window(2)) == [a, b, Window(2)]
    assert parts(a | b) == [a | b] or isinstance(parts(a | b)[0], Or)
    assert parts(None) == []
    assert both([]) is None
    assert both([a]) is a
    assert isinstance(both([a, b]), And)


def test_masks_without_tensors_compare_by_value():
    assert Causal() == Causal()
    assert Window(3) == Window(3) != Window(4)
    assert Causal() & Window(3) == Causal() & Window(3)
    assert hash(Causal() & Window(3)) == hash(Causal() & Window(3))
    assert Causal() & Window(3) != Causal() | Window(3)


@pytest.mark.parametrize("kind", [Padding, Documents, Prefix])
def test_masks_with_tensors_compare_by_identity(kind):
    tensor = torch.ones(1, 4, dtype=torch.long)
    one, other = kind(tensor), kind(tensor)
    assert one == one
    assert one != other
    assert hash(one) == hash(one)
    assert Causal() & one == Causal() & one
    assert Causal() & one != Causal() & other


KEYS = 10
LEAVES = st.one_of(
    st.just(Causal()),
    st.integers(1, 6).map(Window),
    st.integers(0, 2**KEYS - 1).map(
        lambda bits: Padding(torch.tensor([[bool(bits >> i & 1) for i in range(KEYS)]]))
    ),
    st.lists(st.integers(0, 3), min_size=KEYS, max_size=KEYS).map(
        lambda ids: Documents(torch.tensor([ids]))
    ),
    st.integers(0, KEYS).map(lambda n: Prefix(torch.tensor([n]))),
    st.lists(st.integers(-1, 4), min_size=10, max_size=10).map(
        lambda ids: Drawn(2, torch.tensor(ids).view(1, 5, 2))
    ),
    st.just(Blocks(size=2, count=5)),
    st.integers(0, 3).map(lambda n: Blocks(size=2, count=5, near=2 * n + 1, ends=0)),
)
MASKS = st.recursive(
    LEAVES,
    lambda inner: st.tuples(inner, inner, st.booleans()).map(
        lambda t: t[0] & t[1] if t[2] else t[0] | t[1]
    ),
    max_leaves=5,
)


@given(MASKS, st.integers(0, KEYS - 1), st.integers(0, KEYS - 1))
def test_a_span_covers_every_key_that_is_seen(mask, one, other):
    first, last = min(one, other), max(one, other)
    low, high = mask.span(first, last, KEYS)
    whole = seen(mask, queries=last - first + 1, keys=KEYS, start=first)
    assert 0 <= low <= high or not whole.any()
    columns = whole.any(dim=(0, 1, 2)).nonzero().flatten()
    assert all(low <= k < high for k in columns.tolist())


@given(MASKS)
def test_a_total_mask_leaves_every_query_a_key(mask):
    whole = seen(mask, queries=KEYS, keys=KEYS)
    assert not mask.total or whole.any(-1).all()


def test_spans_are_tight_where_it_pays():
    assert Causal().span(3, 5, 10) == (0, 6)
    assert (Causal() & Window(2)).span(5, 6, 10) == (4, 7)
    assert Window(3).span(0, 1, 10) == (0, 4)
    assert (Window(2) | Causal()).span(5, 6, 10) == (0, 8)
    assert Blocks(size=2, count=10, ends=0).span(7, 8, 20) == (4, 12)
    assert Blocks(size=2, count=10).span(7, 8, 20) == (0, 20)
