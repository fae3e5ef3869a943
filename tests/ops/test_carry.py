"""Scores of layers below: channels side by side, their gradients, and questions without a copy."""

import pytest
import torch

from anyformer.ops.attend import attend, choose, refusal
from anyformer.ops.carry import apart, beside, joined, outlined
from anyformer.ops.eager import eager
from anyformer.ops.mask import Causal
from anyformer.ops.plan import Plan

B, H, N, D = 2, 4, 9, 6


def pairs(count: int, groups: int = 2, size: int = D):
    draw = lambda heads: torch.randn(B, heads, N, size, dtype=torch.float64, requires_grad=True)
    return tuple((draw(H), draw(groups)) for _ in range(count))


def test_a_sum_of_scores_is_one_product():
    (q, k), *below = pairs(4)
    wide_q, wide_k, plan = joined(q, k, Plan(0.4, Causal(), carry=tuple(below)))
    repeated = lambda x: x.repeat_interleave(2, 1)
    wanted = sum(a @ repeated(b).mT for a, b in ((q, k), *below))
    torch.testing.assert_close(wide_q @ repeated(wide_k).mT, wanted)
    assert plan.carry == () and plan.scale == 0.4 and isinstance(plan.mask, Causal)


def test_the_reference_sums_scores_before_all_else():
    (q, k), *below = pairs(3, groups=H)
    v = torch.randn(B, H, N, D, dtype=torch.float64)
    scores = 0.4 * sum(a @ b.mT for a, b in ((q, k), *below))
    hidden = torch.ones(N, N, dtype=torch.bool).triu(1)
    wanted = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
    found = eager(q, k, v, Plan(0.4, Causal(), carry=tuple(below)))
    torch.testing.assert_close(found, wanted)


def test_one_query_sums_scores_and_copies_no_keys():
    (q, k), *below = pairs(4)
    v = torch.randn(B, 2, N, D, dtype=torch.float64)
    last = tuple((a[:, :, -1:], b) for a, b in below)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.numel()) or t, lambda t: t
    ):
        found = attend(q[:, :, -1:], k, v, Plan(0.4, Causal(), start=N - 1, carry=last), "eager")
    wanted = attend(q, k, v, Plan(0.4, Causal(), carry=tuple(below)), "sdpa")[:, :, -1:]
    torch.testing.assert_close(found, wanted)
    assert max(sizes) == B * H * N * D  # the keys of one layer
    leaves = [q, k, *(x for pair in below for x in pair)]
    ours, theirs = (torch.autograd.grad(out.sin().sum(), leaves) for out in (found, wanted))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_parts_of_other_heads_are_repeated_and_their_gradients_summed():
    parts = [
        torch.randn(B, heads, N, size, requires_grad=True)
        for heads, size in ((4, 3), (1, 5), (2, 2))
    ]
    whole = beside(parts)
    assert whole.shape == (B, 4, N, 10)
    grad = torch.randn_like(whole)
    wanted = torch.autograd.grad(whole, parts, grad)
    for ours, theirs in zip(apart(grad, parts), wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_one_part_is_itself():
    x = torch.randn(1, 2, 3, 4)
    assert beside([x]) is x
    plan = Plan(1.0)
    assert joined(x, x, plan) == (x, x, plan) and outlined(x, x, plan) == (x, x, plan)


def test_an_outline_has_the_shape_and_no_copy():
    (q, k), *below = pairs(5)
    plan = Plan(1.0, carry=tuple(below))
    found = zip(outlined(q, k, plan)[:2], joined(q, k, plan)[:2], (q, k), strict=True)
    for flat, real, source in found:
        assert (flat.shape, flat.dtype, flat.device) == (real.shape, real.dtype, real.device)
        assert flat.requires_grad
        assert flat.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()


def test_what_runs_depends_on_the_layers_below():
    (q, k), *below = pairs(6, groups=H)
    v = torch.randn(B, H, N, D, dtype=torch.float64)
    plan = lambda count: Plan(1.0, Causal(), carry=tuple(below[:count]), chosen=shared)
    shared = {}
    assert [choose(q, k, v, plan(n)) for n in (0, 3, 4)] == ["sdpa", "sdpa", "eager"]
    assert refusal("sdpa", q, k, v, plan(4)) == "needs values about as wide as q and k"
    for count in (3, 4):  # layers share what was chosen, but not for other layers below
        wanted = attend(q, k, v, Plan(1.0, Causal(), carry=tuple(below[:count])), "eager")
        torch.testing.assert_close(attend(q, k, v, plan(count)), wanted)
    assert sorted(shared.values()) == ["eager", "sdpa"]


@pytest.mark.parametrize("name", ["layered", "chunked"])
def test_a_backend_that_takes_layers_apart_keeps_none_of_their_channels_side_by_side(name):
    if name == "layered":
        pytest.importorskip("triton", reason="layered: Triton isn't installed")
    here = "cuda" if torch.cuda.is_available() else "cpu"
    below = tuple((q.float().to(here), k.float().to(here)) for q, k in pairs(5))
    q, k, v = (torch.randn(B, H, N, D, requires_grad=True, device=here) for _ in "qkv")
    widths = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: widths.append(t.shape[-1]) or t, lambda t: t
    ):
        out = attend(q, k, v, Plan(1.0, Causal(), carry=below), name)
    assert out.requires_grad and len(widths) >= 13 and max(widths) < 2 * D
