"""Branches of one's own: described, registered, built, counted, and tried by the laws."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from anyformer import build, count
from anyformer import spec as S
from anyformer.errors import InputError, SpecError
from anyformer.generate import generate
from anyformer.laws import check
from anyformer.ops.attend import attend
from anyformer.ops.plan import Plan
from anyformer.parts import PARTS, part
from anyformer.parts.state import Call
from anyformer.spec.node import node
from tests.laws.test_mutations import plain


@node
class Mean(S.Custom):
    """The mean of what has been read so far, mapped."""

    bias: bool = True
    recalls = True  # no field: what the class says of all

    def flops(self, dim: int, batch: int, rows: int) -> int:
        return 2 * batch * rows * dim * (dim + 2 * rows)


@part(Mean)
class MeanPart(nn.Module):
    def __init__(self, spec: Mean, dim: int):
        super().__init__()
        self.map = nn.Linear(dim, dim, spec.bias)

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        v = self.map(x)[:, None]  # (B, 1, M, d)
        k, v = call.extend(path, torch.zeros_like(v), v)
        q = k[:, :, -call.length :]
        plan = Plan(
            1.0, mask=call.mask(True, None, False), start=call.place(k.shape[2], call.length)
        )
        return attend(q, k, v, plan)[:, 0]


@node
class Peek(S.Custom):
    """A mistake: each position reads the next one."""

    share: float = 0.5


@part(Peek)
class PeekPart(nn.Module):
    def __init__(self, spec: Peek, dim: int):
        super().__init__()
        self.share = spec.share

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        return x + self.share * x.roll(-1, 1)


@node
class Free(S.Custom):
    """A mistake: it says nothing of its product."""


@part(Free)
class FreePart(nn.Module):
    def __init__(self, spec: Free, dim: int):
        super().__init__()
        self.map = nn.Linear(dim, dim)

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        return self.map(x)


@node
class Unbuilt(S.Custom):
    """A mistake: it has no module."""


# Other tests look at all that is registered, some of them when they are collected: what is here is
# registered while a test of this file runs.
MINE = {kind.__name__: S.KINDS.pop(kind.__name__) for kind in (Mean, Peek, Free, Unbuilt)}
BUILT = {kind: PARTS.pop(kind) for kind in (Mean, Peek, Free)}


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    for name, kind in MINE.items():
        monkeypatch.setitem(S.KINDS, name, kind)
    for kind, built in BUILT.items():
        monkeypatch.setitem(PARTS, kind, built)


def mixing(branch: S.Custom, attends: bool = False) -> S.Model:
    """A small decoder in which a branch of one's own mixes positions, beside attention or alone."""
    spec = plain()
    own = S.Sublayer(branch=branch)
    first = spec.stack.block if attends else spec.stack.block[1:]
    return S.check(S.override(spec, "stack.block", (own, *first)))


@pytest.mark.parametrize("attends", [False, True])
def test_a_part_that_is_right_keeps_every_law(attends):
    assert check(mixing(Mean(), attends), seeds=[0, 1]) == []


def test_a_part_that_leaks_the_future_is_told_of_in_words():
    found = {finding.law: finding for finding in check(mixing(Peek()), seeds=[0, 1])}
    said = str(found["1 causal"])
    assert "no position sees a later one" in said and "off by" in said and "mask it" in said
    assert {"2 cache", "4 padded", "6 packed"} <= found.keys()


def test_one_that_says_that_it_looks_ahead_is_not_blamed_for_it():
    looks = node(type("Ahead", (S.Custom,), {"causal": False, "__annotations__": {}}))
    part(looks)(type("AheadPart", (PeekPart,), {"__init__": lambda self, s, d: _init(self)}))
    try:
        found = [f.law for f in check(mixing(looks()), ["1 causal", "2 cache", "4 padded"])]
    finally:
        del S.KINDS["Ahead"], PARTS[looks]
    assert found == ["4 padded"]


def _init(module: nn.Module) -> None:
    nn.Module.__init__(module)
    module.share = 0.5


def test_products_that_are_not_counted_are_found():
    (found,) = check(mixing(Free()), ["9 flops", "9 parameters", "1 causal"], seeds=[0])
    assert found.law == "9 flops" and "flops()" in found.hint


def test_parameters_are_counted_by_name():
    model = build(mixing(Mean(bias=False)))
    told = count(model.spec)
    assert told.parameters == sum(w.numel() for w in model.parameters())
    assert {part.name: part.parameters for part in told.parts}["custom"] == 2 * 8 * 8


def test_specs_of_ones_own_go_through_json():
    spec = mixing(Mean(bias=False))
    assert S.from_json(S.to_json(spec)) == spec
    assert S.get(spec, "stack.block.0.branch.bias") is False


def test_a_node_without_a_module_and_a_class_that_is_no_node_are_refused():
    with pytest.raises(SpecError, match=r"register one by @part\(Unbuilt\)"):
        build(mixing(Unbuilt()))
    with pytest.raises(SpecError, match="a Custom node"):
        S.Sublayer(branch=type("Mine", (S.Custom,), {})())


def test_texts_are_written_and_a_cache_of_a_set_size_is_refused():
    model = build(mixing(Mean())).eval()
    ids = torch.tensor([[3, 4, 5]])
    assert generate(model, ids, max_new_tokens=4).shape == (1, 7)
    with pytest.raises(InputError, match="one's own"):
        generate(model, ids, max_new_tokens=4, decoder="static")
