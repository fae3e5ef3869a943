"""Layers that become one shared layer with a LoRA for each (arXiv:2410.20672), and back."""

import itertools
import re

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.checkpoint import Report, swap
from anyformer.checkpoint.native import Origin
from anyformer.checkpoint.relax import truncated
from anyformer.errors import CheckpointError

SIZES = {"dim": 16, "depth": 4, "heads": 4, "vocab": 23}
IDS = torch.arange(18).view(2, 9) % 23
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
EXACT = {"rtol": 1e-10, "atol": 1e-10}  # in float64


def made(name="llama", **options):
    """A model whose layers differ and whose weights are all away from their fresh values."""
    spec = anyformer.recipe(name, **SIZES, **options)
    return moved(anyformer.build(spec).eval())


@torch.no_grad()
def moved(model):
    draws = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        weight.add_(0.1 * torch.randn(weight.shape, generator=draws))
    return model


def changed(model, changes):
    spec = model.spec
    for path, value in changes.items():
        spec = S.override(spec, path, value)
    return swap(model, spec)


def shared(unique=1, order="cycle", own=("norm",), **options):
    """Changes that share the blocks of a stack and give each application a LoRA."""
    schedule = S.Shared(unique=unique, order=order)
    return {"stack.schedule": schedule, "stack.own": own, "stack.lora": S.Lora(**options)}


def answer(model):
    return model(IDS).last_hidden_state


def assert_same(one, other, **tolerance):
    torch.testing.assert_close(answer(one), answer(other), **tolerance or CLOSE)


@torch.no_grad()
def distance(one, other):
    return float((answer(one) - answer(other)).norm())


# ----------------------------------------------------------- layers to a recursion


@pytest.mark.parametrize("alpha", [None, 4.0])
@pytest.mark.parametrize(("unique", "order"), [(1, "cycle"), (2, "cycle"), (3, "middle_cycle")])
def test_full_rank_changes_nothing(unique, order, alpha):
    model = made()
    again = changed(model, shared(unique, order, rank=64, alpha=alpha))
    assert_same(again, model)
    assert not again.report.fresh and not again.report.dropped


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_full_rank_with_biases_changes_nothing(name):
    model = made(name, length=12)
    changes = shared(2, rank=64, bias=True)
    again = changed(model, changes)
    assert_same(again, model)
    averaged = changed(model, changes | {"stack.lora": S.Lora(rank=64)})
    assert distance(averaged, model) > 1e-2, "biases are averaged where they have no update"


@pytest.mark.parametrize("name", ["llama", "gpt-j"])
def test_the_error_shrinks_with_the_rank(name):
    model = made(name, **({"rotary_dim": 4} if name == "gpt-j" else {}))
    errors, kept = [], []
    for rank in (1, 2, 4, 8, 12, 16):
        again = changed(model, shared(own=() if name == "gpt-j" else ("norm",), rank=rank))
        errors.append(weight_error(model, again))
        kept.append(shares(again))
    assert all(one > other for one, other in itertools.pairwise(errors))
    assert all(one < other for one, other in itertools.pairwise(kept))
    assert kept[-1] == pytest.approx(100.0)


def test_outputs_of_layers_that_are_near_come_closer_with_the_rank():
    model = made()
    first = model.stack.blocks[0].state_dict()
    with torch.no_grad():
        for block in model.stack.blocks:
            for name, weight in block.named_parameters():
                weight.lerp_(first[name], 0.9)
    found = [distance(changed(model, shared(rank=rank)), model) for rank in (1, 4, 8, 12, 16)]
    found = [distance(changed(model, shared() | {"stack.lora": None}), model), *found]
    assert all(one > other for one, other in itertools.pairwise(found)), found


def shares(model):
    """The smallest share of the squared differences that the report speaks of, in percent."""
    said = [how for key, how in model.report.converted if ".lora." in key]
    return min(float(re.search(r"keeps ([\d.]+)%", how)[1]) for how in said)


def weight_error(model, again):
    """The squared differences between every turn's weights and those of its layer."""
    total, state = 0.0, again.state_dict()
    for key, weight in model.state_dict().items():
        parts = re.fullmatch(
            r"stack\.blocks\.(\d+)\.(\d+)\.branch\.(branches\.(\d)\.)?(\w+)\.weight", key
        )
        if parts is None or weight.dim() < 2:
            continue
        block, sub, _, leaf, name = parts.groups()
        at = f"stack.blocks.{block}.{sub}.lora.{leaf or 0}.{name}"
        whole = (
            state[key.replace(f"blocks.{block}", "blocks.0")] + state[f"{at}.b"] @ state[f"{at}.a"]
        )
        total += float((whole - weight).square().sum())
    return total


def test_load_overrides_and_reports(tmp_path):
    model = made()
    model.save_pretrained(tmp_path / "one", "anyformer")
    again = anyformer.load(tmp_path / "one", override=shared(2, rank=4))
    converted = dict(again.report.converted)
    assert converted["stack.blocks.0.0.branch.q.weight"] == "the mean of 2 parts"
    how = converted["stack.blocks.3.1.lora.0.gate.b"]
    assert re.fullmatch(
        r"from stack\.blocks\.3\.1\.branch\.gate\.weight; rank 4 keeps \d+\.\d+% of the squared "
        "differences between 2 weights and the shared one",
        how,
    )
    assert "stack.blocks.*.0.lora.0.q.a (2): from stack.blocks.*" in str(again.report)
    again.save_pretrained(tmp_path / "two")
    torch.testing.assert_close(anyformer.load(tmp_path / "two")(IDS).logits, again(IDS).logits)


def test_blocks_that_run_once_and_own_branches_have_no_lora():
    model = made()
    changes = shared(own=("norm", "attention"), rank=64)
    changes["stack.schedule"] = S.Looped(prelude=1, core=1, coda=1, loops=2)
    again = changed(model, changes)
    adapted = {key.split(".lora.")[0] for key in again.state_dict() if ".lora." in key}
    assert adapted == {"stack.blocks.1.1", "stack.blocks.2.1"}
    assert_same(again, model)


def test_branches_side_by_side():
    model = made("gpt-j", rotary_dim=4)
    again = changed(model, shared(own=(), rank=64, bias=True))
    norms = {f"{key}" for key in again.state_dict() if ".norm." in key and "blocks" in key}
    assert norms == {"stack.blocks.0.0.norm.weight", "stack.blocks.0.0.norm.bias"}
    for block in model.stack.blocks:  # norms go with the block
        block[0].norm.load_state_dict(model.stack.blocks[0][0].norm.state_dict())
    again = changed(model, shared(own=(), rank=64, bias=True))
    assert_same(again, model)


# ------------------------------------------------------------------- and onwards


def relaxed(**options):
    """A recursion whose updates are no mere rest of layers, in float64."""
    return moved(changed(made().double(), shared(2, **{"rank": 3, **options})))


def test_the_same_spec_keeps_every_update():
    model = relaxed()
    assert swap(model, model.spec).report == Report(kept=tuple(model.state_dict()))
    assert changed(model, {"stack.block.0.dropout": 0.1}).report.kept == tuple(model.state_dict())


def test_layers_of_their_own_take_the_updates_in():
    model = relaxed(alpha=5.0)
    again = changed(model, {"stack.lora": None, "stack.schedule": S.Plain()})
    assert_same(again, model, **EXACT)
    assert not again.report.dropped and not again.report.fresh
    back = changed(again, shared(2, rank=16))
    assert_same(back, model, **EXACT)


@pytest.mark.parametrize("options", [{"rank": 3, "alpha": 7.0}, {"rank": 5}, {"rank": 40}])
def test_another_rank_or_alpha_changes_nothing(options):
    model = relaxed()
    again = changed(model, {"stack.lora": S.Lora(**options)})
    assert_same(again, model, **EXACT)
    assert "stack.blocks.0.0.branch.q.weight" in again.report.kept


def test_a_smaller_rank_keeps_the_largest_part():
    model = relaxed()
    again = changed(model, {"stack.lora": S.Lora(rank=2)})
    assert 40 < shares(again) < 100


def test_other_weights_named():
    model = relaxed(on=("q", "k"))
    again = changed(model, {"stack.lora": S.Lora(rank=3, on=("k", "v"))})
    kept, converted = set(again.report.kept), dict(again.report.converted)
    assert {"stack.blocks.2.0.lora.0.k.a", "stack.blocks.0.0.branch.k.weight"} <= kept
    assert {"stack.blocks.2.0.lora.0.v.a"} <= set(again.report.fresh)
    assert (
        converted["stack.blocks.0.0.branch.q.weight"] == "the mean of 2 turns, with what LoRA added"
    )


def test_a_recursion_gets_updates_that_change_nothing_and_learn():
    model = changed(made(), shared(2) | {"stack.lora": None})
    again = changed(model, {"stack.lora": S.Lora(rank=2)})
    assert_same(again, model, rtol=0, atol=0)
    assert all(".lora." in key for key in again.report.fresh)
    again(IDS, labels=IDS).loss.backward()
    assert all(p.grad.any() for n, p in again.named_parameters() if n.endswith(".b"))


def test_a_family_without_lora_refuses_to_save_one(tmp_path):
    model = made("albert", length=12)
    model.origin = Origin("albert", "base", {})
    again = changed(model, {"stack.lora": S.Lora(rank=2)})
    with pytest.raises(CheckpointError, match="anyformer"):
        again.save_pretrained(tmp_path)


def test_a_weight_that_changes_its_shape_takes_updates_in_and_starts_new_ones():
    model = relaxed()
    again = changed(model, {"stack.block.0.branch.kv_heads": 2})
    assert "stack.blocks.0.0.lora.0.k.a" in again.report.fresh
    assert "stack.blocks.0.0.lora.0.q.a" in again.report.kept
    assert (
        "with what LoRA added" in dict(again.report.converted)["stack.blocks.0.0.branch.k.weight"]
    )


def test_weights_in_less_precision():
    model = made().to(torch.bfloat16)
    again = changed(model, shared(rank=16))
    assert {p.dtype for p in again.parameters()} == {torch.bfloat16}
    assert weight_error(model, again) < 1e-2 * weight_error(model, changed(model, shared(rank=1)))


@pytest.mark.parametrize("small", [False, True])
def test_truncated_is_the_nearest_of_its_rank(monkeypatch, small):
    monkeypatch.setattr("anyformer.checkpoint.relax.LARGE", 8 if small else 1024)
    matrix = torch.randn(60, 50, generator=torch.Generator().manual_seed(1)).double()
    state = torch.get_rng_state()
    a, b = truncated(matrix, 3)
    assert torch.equal(state, torch.get_rng_state())
    values = torch.linalg.svdvals(matrix)
    torch.testing.assert_close((b @ a - matrix).norm(), values[3:].norm(), rtol=1e-2, atol=0)
    torch.testing.assert_close(a @ a.T, torch.eye(3).double())
