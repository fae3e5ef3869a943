"""Nodes: checked fields, JSON round trips, errors that name the nearest word."""

import copy
import json
import pickle

import pytest

from anyformer.errors import SpecError
from anyformer.spec import (
    KINDS,
    Attention,
    FeedForward,
    LayerNorm,
    Model,
    RMSNorm,
    Sublayer,
    from_dict,
    from_json,
    make,
    to_dict,
    to_json,
)
from anyformer.spec.node import Range, describe, names

BLOCK = Sublayer(branch=Attention(heads=2, relative=(make("ALiBi"),)), norm=RMSNorm(eps=1e-3))


def test_equal_fields_are_equal_nodes():
    assert LayerNorm(eps=1e-5) == LayerNorm()
    assert hash(LayerNorm(eps=1e-5)) == hash(LayerNorm())
    assert LayerNorm() != RMSNorm(eps=1e-5)


def test_nodes_are_frozen():
    with pytest.raises(AttributeError):
        LayerNorm().eps = 1.0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_equal(copied):
    assert copied(BLOCK) == BLOCK


def test_json_round_trip():
    assert from_json(to_json(BLOCK)) == BLOCK
    assert to_dict(LayerNorm()) == {"is": "LayerNorm", "eps": 1e-5, "bias": True}


def test_json_lists_are_tuples():
    back = from_dict(json.loads(to_json(BLOCK)))
    assert back.branch.relative == (make("ALiBi"),)


def test_ints_are_taken_for_floats_and_lists_for_tuples():
    assert type(Sublayer(branch=FeedForward(), dropout=0).dropout) is float
    assert Attention(heads=1, mods=[make("SoftCap")]).mods == (make("SoftCap"),)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: LayerNorm(epsilon=1e-5),
            "unknown field of LayerNorm 'epsilon'; did you mean 'eps'",
        ),
        (lambda: LayerNorm(1e-5), "LayerNorm takes its fields by name"),
        (lambda: Attention(), "Attention needs a value for heads"),
        (lambda: Attention(heads=0), "Attention.heads must be at least 1, not 0"),
        (lambda: Attention(heads=True), "Attention.heads takes an int"),
        (lambda: Attention(heads=2, kv_heads=0), "Attention.kv_heads must be at least 1"),
        (lambda: LayerNorm(eps=0.0), "LayerNorm.eps must be above 0"),
        (lambda: Sublayer(branch=FeedForward(), dropout=1.5), "at least 0 and at most 1"),
        (lambda: FeedForward(act="gellu"), "did you mean 'gelu'"),
        (lambda: FeedForward(act=3), "takes one of 'gelu'"),
        (lambda: FeedForward(gated=1), "FeedForward.gated takes True or False, not 1"),
        (lambda: Sublayer(branch=LayerNorm()), "Sublayer.branch takes Attention or FeedForward"),
        (lambda: Attention(heads=1, mods=LayerNorm()), "takes a tuple of SoftCap or Temperature"),
        (lambda: Attention(heads=1, mods=(LayerNorm(),)), r"Attention.mods\[0\] takes"),
        (lambda: make("LayerNrm"), "unknown kind of part 'LayerNrm'; did you mean 'LayerNorm'"),
        (lambda: from_json("{"), "not JSON"),
        (lambda: from_json('{"eps": 1.0}'), "needs the key 'is'"),
        (lambda: from_json('{"is": "LayerNorm", "epps": 1.0}'), "did you mean 'eps'"),
    ],
)
def test_bad_values_say_what_to_do(build, message):
    with pytest.raises(SpecError, match=message):
        build()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_explains_itself(kind):
    assert KINDS[kind].__doc__
    assert names(KINDS[kind]) is not None
    assert all(name.isidentifier() for name in names(KINDS[kind]))


def test_ranges_in_words():
    assert str(Range(0.0, open=True)) == "above 0"
    assert str(Range(0.0, 1.0)) == "at least 0 and at most 1"
    assert describe(int | None) == "an int or None"


def test_model_is_a_kind():
    assert KINDS["Model"] is Model
