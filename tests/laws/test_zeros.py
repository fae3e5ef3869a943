"""Law 8 where it is promised: a query that sees no key gets zeros, and finite gradients."""

from functools import partial

import pytest
import torch

from anyformer.ops import weigh as W
from anyformer.ops.attend import BACKENDS, attend, refusal
from anyformer.ops.mask import Causal, Documents, Mask, Padding
from anyformer.ops.plan import Plan

B, H, N, D = 2, 2, 5, 4
WHOLE = ("halved", "eager", "chunked")  # backends that take everything
NARROW = (
    "far",
    "lead",
    "shelves",
    "tiles",
    "sparse",
    "talking",
    "layered",
)  # backends without float64
NOBODY = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 1, 0, 0]]).bool()  # of the first row
LATE = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()  # the first queries see none
WEIGHS = {
    "softmax": None,
    "top_k": partial(W.top_k, k=2),
    "entmax15": W.entmax15,
    "sparsemax": W.sparsemax,
    "sigmoid": W.sigmoid,
}
MASKS: dict[str, tuple[Mask, torch.Tensor]] = {  # mask, which queries see something
    "a hidden row": (Padding(NOBODY), NOBODY.any(1, keepdim=True).expand(B, N)),
    "padded queries": (Padding(NOBODY, queries=True, right=True), NOBODY),
    "causal behind padding": (Causal() & Padding(LATE), LATE),
    "a document of padding": (Documents(LATE.long()) & Padding(LATE), LATE),
}


def _attend(name: str, plan: Plan) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The output and the gradient of q; None where the backend refuses."""
    torch.manual_seed(0)
    dtype = torch.float32 if name in NARROW else torch.float64
    q, k, v = (torch.randn(B, H, N + plan.lead, D, dtype=torch.float64).to(dtype) for _ in "qkv")
    q = q[:, :, :N].requires_grad_(name != "flex")
    if refusal(name, q, k, v, plan) is not None:
        return None
    out = attend(q, k, v, plan, name)
    gradient = torch.zeros_like(q) if name == "flex" else torch.autograd.grad(out.sum(), q)[0]
    return out, gradient


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("weigh", WEIGHS)
@pytest.mark.parametrize("case", MASKS)
def test_a_query_that_sees_nothing_gets_zeros(case, weigh, name):
    mask, seeing = MASKS[case]
    found = _attend(name, Plan(0.5, mask=mask, weigh=WEIGHS[weigh], remix=_mix(weigh)))
    if found is None:
        assert name not in WHOLE
        return
    out, gradient = found
    blind = ~seeing[:, None, :, None].expand_as(out)
    assert torch.isfinite(out).all() and torch.isfinite(gradient).all()
    assert (out[blind] == 0).all() and (gradient[blind] == 0).all()
    assert (out[~blind] != 0).any()


def _mix(weigh: str) -> torch.Tensor | None:
    """Heads mixed afterwards, which leaves zeros alone; the plain case stays plain."""
    return None if weigh == "softmax" else torch.ones(H, H).double()


@pytest.mark.parametrize("name", BACKENDS)
def test_persistent_keys_are_seen_even_then(name):
    found = _attend(name, Plan(0.5, mask=Padding(NOBODY), lead=2))
    wanted = _attend("eager", Plan(0.5, mask=Padding(NOBODY), lead=2))
    assert wanted is not None
    if found is None:
        assert name not in (*WHOLE, "sdpa", "flex")
        return
    near = 1e-5 if name in NARROW else 1e-7
    torch.testing.assert_close(found[0].double(), wanted[0], rtol=near, atol=near)
    assert (found[0][0] != 0).all()
