"""The kernel for one query equals eager in float64; on a CPU interpreted."""

import pytest
import torch

from anyformer.ops import one as module
from anyformer.ops.attend import attend, refusal
from anyformer.ops.eager import eager
from anyformer.ops.mask import Causal, Padding
from anyformer.ops.plan import Plan

pytest.importorskip("triton", reason="one: Triton isn't installed")
WHERE = "cuda" if torch.cuda.is_available() else "cpu"
NEAR = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def drawn(batch: int, heads: tuple[int, int], keys: int, size: tuple[int, int], dtype: torch.dtype):
    """q, k and v of which k and v are views of longer caches, as those of a decoder are."""
    make = lambda *shape: torch.randn(shape, device=WHERE).to(dtype)
    q = make(batch, heads[0], 1, size[0])
    k, v = (make(batch, heads[1], keys + 5, d)[:, :, :keys] for d in size)
    return q, k, v


def check(q, k, v, plan: Plan) -> None:
    """Raise unless the kernel gives what eager gives in float64."""
    with torch.no_grad():
        found = attend(q, k, v, plan, "one").double()
        wanted = eager(q.double(), k.double(), v.double(), plan)
    gap = (found - wanted).norm() / wanted.norm()
    assert found.shape == wanted.shape
    assert gap < NEAR[q.dtype], f"differs by {gap:.1e}"


@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize("heads", [(3, 3), (4, 2), (5, 1)])
@pytest.mark.parametrize("seen", ["all", "some", "rows"])
def test_equals_eager(heads, seen, shares, monkeypatch):
    monkeypatch.setattr(module, "shares_of", lambda k: shares)
    q, k, v = drawn(2, heads, 150, (24, 16), torch.float32)
    keep = torch.arange(150, device=WHERE)[None] <= 70  # two tiles of three lie in the future
    if seen == "rows":
        keep = keep & (torch.arange(150, device=WHERE) >= torch.tensor([[0], [66]], device=WHERE))
    check(q, k, v, Plan(0.3, None if seen == "all" else Padding(keep, sure=True)))


@pytest.mark.parametrize("dtype", list(NEAR))
def test_every_type(dtype):
    q, k, v = drawn(1, (2, 1), 40, (64, 64), dtype)
    keep = torch.arange(40, device=WHERE)[None] % 3 > 0
    check(q, k, v, Plan(0.125, Padding(keep, sure=True)))


def test_persistent_keys_are_seen():
    q, k, v = drawn(2, (2, 2), 30, (16, 16), torch.float32)
    keep = torch.arange(26, device=WHERE)[None] < 9
    check(q, k, v, Plan(0.25, Padding(keep, sure=True), lead=4))


def test_says_why_not(monkeypatch):
    q, k, v = drawn(1, (2, 2), 8, (16, 16), torch.float32)
    says = lambda plan, *x: refusal("one", *(x or (q, k, v)), plan)
    assert says(Plan(1.0)) is None
    assert "one query" in str(says(Plan(1.0, Causal())))
    assert "one type" in str(says(Plan(1.0), q.double(), k, v))
    assert "no backward pass" in str(says(Plan(1.0), q.clone().requires_grad_(), k, v))
    monkeypatch.setattr(module, "INSTALLED", False)
    assert "Triton" in str(says(Plan(1.0)))


def test_shares_follow_the_room_that_a_gpu_has():
    few, many = torch.empty(1, 12, 2048, 1), torch.empty(64, 12, 2048, 1)
    assert module.shares_of(few) == 8
    assert module.shares_of(many) == 1
    assert module.shares_of(few[:, :, :300]) == 1
