"""Rows: every step goes there and back, and what has no row or no value is named."""

import pytest
import torch

from anyformer.checkpoint import keymap
from anyformer.checkpoint.keymap import (
    Row,
    backwards,
    by_head,
    forwards,
    linear,
    reshape,
    row,
    split,
)
from anyformer.errors import CheckpointError

STEPS = {
    "transpose": (keymap.TRANSPOSE, [torch.randn(3, 5)]),
    "flip rows": (keymap.FLIP_ROWS, [torch.randn(4, 2)]),
    "split": (split(2, 3, 1), [torch.randn(6, 4)]),
    "split columns": (split(1, 3, dim=1), [torch.randn(6, 4)]),
    "by head": (by_head(2), [torch.randn(12, 5)]),
    "by head, a bias": (by_head(3, 2), [torch.randn(12)]),
    "reshape": (reshape((6, 2), (3, 4)), [torch.randn(3, 4)]),
}


@pytest.mark.parametrize("name", STEPS)
def test_every_step_has_its_inverse(name):
    step, tensors = STEPS[name]
    back = step.back(step.there(tensors))
    assert all(torch.equal(a, b) for a, b in zip(back, tensors, strict=True))
    moved = step.there(tensors)
    assert len(moved) != len(tensors) or not torch.equal(moved[0], tensors[0])


def test_by_head_takes_apart_what_was_laid_head_by_head():
    q, k, v = (torch.full((4,), float(i)) for i in range(3))
    fused = torch.cat([q[:2], k[:2], v[:2], q[2:], k[2:], v[2:]])
    assert all(torch.equal(a, b) for a, b in zip(by_head(2).there([fused]), (q, k, v), strict=True))


def test_a_row_runs_its_steps_in_order_and_back():
    item = row("qkv", ["q", "k", "v"], keymap.TRANSPOSE, split(2, 2, 2))
    theirs = {"qkv": torch.randn(5, 6)}
    ours = forwards(item, theirs)
    assert {key: tuple(t.shape) for key, t in ours.items()} == dict.fromkeys("qkv", (2, 5))
    assert torch.equal(backwards(item, ours)["qkv"], theirs["qkv"])


def test_linear_has_a_bias_unless_told():
    assert [r.theirs for r in linear("a", "b")] == [("a.weight",), ("a.bias",)]
    assert list(linear("a", "b", bias=False)) == [Row(("a.weight",), ("b.weight",))]


ROWS = [*linear("dense", "out")]
WEIGHTS = {"dense.weight": torch.ones(2, 2), "dense.bias": torch.ones(2)}


def test_load_and_save_are_one_table():
    ours = keymap.load(WEIGHTS, ROWS, ["out.weight", "out.bias"])
    assert ours.keys() == {"out.weight", "out.bias"}
    again = keymap.save(ours, ROWS)
    assert again.keys() == WEIGHTS.keys()
    assert all(t.is_contiguous() for t in again.values())


def test_a_key_without_a_row_is_named_with_the_nearest():
    with pytest.raises(
        CheckpointError, match=r"here holds keys.*'dense.bais'; nearest.*dense.bias"
    ):
        keymap.load(WEIGHTS | {"dense.bais": torch.ones(2)}, ROWS, [], "here")


def test_a_parameter_without_a_value_is_named():
    with pytest.raises(CheckpointError, match=r"lacks what the model needs: 'out.scale'"):
        keymap.load(WEIGHTS, ROWS, ["out.scale"])


def test_a_parameter_without_a_row_is_named():
    with pytest.raises(
        CheckpointError, match=r"parameters that this family has no row for: 'gain'"
    ):
        keymap.save({"gain": torch.ones(1)}, ROWS)


def test_many_keys_are_counted():
    with pytest.raises(CheckpointError, match=r"'k0', 'k1', 'k2', 'k3', 'k4' and 2 more"):
        keymap.complain("what", {f"k{i}" for i in range(7)}, [])
