"""One module for each spec class that has one, each of them final and found by one registry."""

import itertools

import pytest
from torch import nn

from anyformer import parts
from anyformer import spec as S
from anyformer.laws.specs import sample
from anyformer.model import model as model_module

WIRING = {S.Model, S.Stack, S.Sublayer, S.Embed, S.Init}  # built by anyformer.model itself
INPUTS = {S.Tokens, S.Patches, S.Values, S.Learned, S.Sinusoidal}  # tables inside Embed
FUNCTIONS = {S.Softmax, S.TopK, S.Entmax15, S.Sparsemax, S.Sigmoid, S.Rotary}  # no weights
FUNCTIONS |= {S.Linear, S.Llama3, S.Yarn}
SCHEDULES = {S.Plain, S.Shared, S.Looped, S.Superblocks, S.Sandwich, S.Explicit}  # a list
# those of a page of the docs, say, are not ours
PARTS = {s: p for s, p in parts.PARTS.items() if p.__module__.startswith("anyformer.")}
WITHOUT = WIRING | INPUTS | FUNCTIONS | SCHEDULES


def test_every_spec_class_has_a_part_or_a_reason():
    assert model_module is not None  # its heads are registered
    kinds = {kind for kind in S.KINDS.values() if kind.__module__.startswith("anyformer.spec")}
    assert kinds == PARTS.keys() | WITHOUT
    assert not PARTS.keys() & WITHOUT


def test_a_part_belongs_to_one_spec_class():
    assert len(set(PARTS.values())) == len(PARTS)
    named = {spec.__name__: part.__name__ for spec, part in PARTS.items()}
    assert all(spec == part for spec, part in named.items())


def test_parts_are_final():
    pairs = itertools.permutations(PARTS.values(), 2)
    assert not [(a, b) for a, b in pairs if issubclass(a, b)]
    under = [c for part in PARTS.values() for c in part.__subclasses__()]
    # a part of which every rank has some heads or channels becomes one of these, and so does one
    # that is called without ceremony
    known = ("anyformer.train.tensor", "anyformer.parts.twin")
    assert not [c for c in under if c.__module__ not in known]


HEADS = {S.Transform, S.Vocabulary, S.Classes, S.Choices, S.Span, S.Detect, S.Pooler, S.Project}
HEADS |= {S.Pretraining, S.Adaptive, S.Double, S.Pixels}
HOMES = {S.Beams: "anyformer.model.beams"} | dict.fromkeys(HEADS, "anyformer.model.heads")


def test_part_files_mirror_spec_files():
    for spec, part in PARTS.items():
        file = spec.__module__.rpartition(".")[2]
        assert part.__module__ == HOMES.get(spec, f"anyformer.parts.{file}"), spec.__name__


@pytest.mark.parametrize("seed", range(20))
def test_no_attribute_is_named_like_a_method_of_modules(seed):
    taken = set(dir(nn.Module))
    for path, module in model_module.build(sample(seed)).named_modules():
        own = {*module._modules, *module._parameters, *module._buffers}
        assert not own & taken, path
