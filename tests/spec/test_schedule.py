"""Every schedule's list, written out by hand."""

import pytest

from anyformer.errors import SpecError
from anyformer.spec import (
    Attention,
    Explicit,
    FeedForward,
    Looped,
    Lora,
    Plain,
    Sandwich,
    Shared,
    Stack,
    Sublayer,
    Superblocks,
    layout,
    ring,
    with_rounds,
)
from anyformer.spec.schedule import Ring, turns

ATTENTION = Sublayer(branch=Attention(heads=1, causal=True))
CROSS = Sublayer(branch=Attention(heads=1, cross=True))
FEED = Sublayer(branch=FeedForward())


def blocks(schedule, depth, **others):
    return layout(Stack(block=(ATTENTION, FEED), depth=depth, schedule=schedule, **others))


@pytest.mark.parametrize(
    ("schedule", "depth", "expected"),
    [
        (Plain(), 4, (0, 1, 2, 3)),
        (Shared(unique=1), 4, (0, 0, 0, 0)),  # ALBERT
        (Shared(unique=2), 6, (0, 0, 0, 1, 1, 1)),  # ALBERT with two groups
        (Shared(unique=3, order="sequence"), 6, (0, 0, 1, 1, 2, 2)),
        (Shared(unique=3, order="sequence"), 7, (0, 0, 0, 1, 1, 2, 2)),
        (Shared(unique=3, order="cycle"), 6, (0, 1, 2, 0, 1, 2)),
        (Shared(unique=3, order="cycle"), 7, (0, 1, 2, 0, 1, 2, 0)),
        (Shared(unique=3, order="cycle_reverse"), 6, (0, 1, 2, 2, 1, 0)),
        (Shared(unique=2, order="cycle_reverse"), 6, (0, 1, 0, 1, 1, 0)),
        (Shared(unique=3, order="cycle_reverse"), 3, (0, 1, 2)),
        (Shared(unique=4, order="middle_cycle"), 6, (0, 1, 2, 1, 2, 3)),
        (Shared(unique=3, order="middle_cycle"), 5, (0, 1, 1, 1, 2)),
        (Shared(unique=2, order="middle_cycle"), 4, (0, 1, 1, 1)),
        (Shared(unique=4, order="middle_sequence"), 6, (0, 1, 1, 2, 2, 3)),
        (Shared(unique=3, order="middle_sequence"), 5, (0, 1, 1, 1, 2)),
        (Shared(unique=2, order="middle_sequence"), 4, (0, 1, 1, 1)),
        (Shared(unique=4, order="middle_sequence"), 4, (0, 1, 2, 3)),
        (Shared(unique=9), 2, (0, 1)),  # no more blocks than applications
        (Looped(prelude=1, core=2, coda=1, loops=2), 6, (0, 1, 2, 1, 2, 3)),
        (Looped(prelude=0, core=1, coda=0, loops=3), 3, (0, 0, 0)),
        (Superblocks(layers=2, each=2, repeat=1), 8, (0, 0, 1, 1, 2, 2, 3, 3)),
        (Superblocks(layers=2, each=1, repeat=2), 8, (0, 1, 0, 1, 2, 3, 2, 3)),
        (Explicit(order=(0, 1, 0, 2)), 4, (0, 1, 0, 2)),
    ],
)
def test_order(schedule, depth, expected):
    found = blocks(schedule, depth)
    assert found.schedule == expected
    assert len(found.blocks) == max(expected) + 1
    assert set(found.blocks) == {(ATTENTION, FEED)}


def test_sandwich():
    found = blocks(Sandwich(coefficient=2), 3)
    a, f = (ATTENTION,), (FEED,)
    assert found.blocks == (a, a, (ATTENTION, FEED), f, f)
    assert found.schedule == (0, 1, 2, 3, 4)


def test_sandwich_keeps_cross_attention_in_the_middle():
    stack = Stack(block=(ATTENTION, CROSS, FEED), depth=2, schedule=Sandwich(coefficient=1))
    assert layout(stack).blocks == ((ATTENTION,), (ATTENTION, CROSS, FEED), (FEED,))


def test_kinds_of_block_take_turns():
    found = blocks(Plain(), 3, others=((FEED,),))
    assert found.blocks == ((ATTENTION, FEED), (FEED,), (ATTENTION, FEED))


def test_kinds_of_block_as_listed():
    found = blocks(Plain(), 4, others=((FEED,),), kinds=(1, 1, 0))
    assert found.blocks == ((FEED,), (FEED,), (ATTENTION, FEED), (FEED,))


def test_a_shared_schedule_takes_kinds_by_unique_block():
    found = blocks(Shared(unique=2), 4, others=((FEED,),))
    assert found.blocks == ((ATTENTION, FEED), (FEED,))
    assert found.schedule == (0, 0, 1, 1)


def test_applications_of_a_shared_block_have_a_lora():
    lora = Lora(rank=2)
    found = blocks(Looped(core=1, loops=2), 4, lora=lora)
    assert found.schedule == (0, 1, 2, 3)
    assert found.lenders == (0, 1, 1, 3)
    assert found.loras == (None, lora, lora, None)
    assert (lora.scale, Lora(rank=2, alpha=3.0).scale) == (1.0, 1.5)


def test_a_sandwich_has_no_list_of_its_own():
    from anyformer.spec.schedule import _order

    with pytest.raises(SpecError, match="no list"):
        _order(Sandwich(), 2)


def stack(schedule, depth, **others):
    return Stack(block=(ATTENTION, FEED), depth=depth, schedule=schedule, **others)


@pytest.mark.parametrize(
    ("schedule", "depth", "expected"),
    [
        (Plain(), 4, None),
        (Shared(unique=1), 4, Ring(0, 1, 4)),
        (Shared(unique=1), 1, Ring(0, 1, 1)),
        (Shared(unique=2), 4, None),
        (Shared(unique=2, order="cycle"), 6, Ring(0, 2, 3)),
        (Shared(unique=2, order="cycle"), 5, None),
        (Shared(unique=2, order="cycle"), 2, Ring(0, 2, 1)),
        (Shared(unique=4, order="middle_cycle"), 8, Ring(1, 2, 3)),
        (Shared(unique=4, order="middle_cycle"), 4, Ring(1, 2, 1)),
        (Shared(unique=3, order="cycle_reverse"), 6, None),
        (Looped(prelude=1, core=2, coda=1, loops=3), 8, Ring(1, 2, 3)),
        (Looped(prelude=2, core=1, coda=0, loops=1), 3, Ring(2, 1, 1)),
        (Superblocks(layers=2, repeat=3), 6, Ring(0, 2, 3)),
        (Superblocks(layers=2, repeat=2), 8, None),
        (Explicit(order=(0, 1, 2, 1, 2, 3)), 6, Ring(1, 2, 2)),
        (Explicit(order=(0, 1, 1, 0, 1, 1)), 6, None),
    ],
)
@pytest.mark.parametrize("own", [(), ("norm",)])
def test_rounds(schedule, depth, expected, own):
    given = stack(schedule, depth, own=own)
    assert ring(given) == expected
    if expected is None:
        with pytest.raises(SpecError, match="goes round"):
            with_rounds(given, 2)
        return
    assert with_rounds(given, expected.rounds).depth == depth
    more = with_rounds(given, expected.rounds + 2)
    assert ring(more) == Ring(expected.first, expected.size, expected.rounds + 2)
    assert with_rounds(more, 1).depth == depth - (expected.rounds - 1) * expected.size


def test_turns():
    found = turns(stack(Shared(unique=2), 4))
    assert found == ((0, 0), (0, 1), (2, 0), (2, 1))
    looped = stack(Looped(prelude=1, core=1, coda=1, loops=2), 4, own=("norm",))
    assert turns(looped) == ((0, 0), (1, 0), (1, 1), (3, 0))
