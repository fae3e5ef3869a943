"""Every backend on a GPU equals eager, forward and backward, over the product of plans."""

from functools import partial

import pytest
import torch

from anyformer.ops import weigh
from anyformer.ops.attend import BACKENDS, attend, choose, refusal
from anyformer.ops.mask import Causal, Documents, Mask, Padding, Prefix, Window
from anyformer.ops.plan import Mod, Plan
from anyformer.ops.relative import Relative

pytestmark = [
    pytest.mark.gpu,  # torch 2.11 warns so of itself while it compiles FlexAttention
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]
B, H, G, Q, D = 2, 4, 2, 150, 32  # Q is no multiple of a tile


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", requires_grad=True)


def masks(keys: int) -> dict[str, Mask | None]:
    right = torch.ones(B, keys, dtype=torch.bool, device="cuda")
    right[1, -40:] = False
    documents = torch.arange(keys, device="cuda")[None].repeat(B, 1) // 60
    return {
        "none": None,
        "causal": Causal(),
        "window": Causal() & Window(20),
        "padding": Padding(right, queries=True, right=True),
        "causal, right": Causal() & Padding(right, queries=True, right=True),
        "causal, left": Causal() & Padding(right.flip(1), queries=True),
        "documents": Causal() & Documents(documents),
        "prefix": Causal() | Prefix(torch.tensor([20, 50], device="cuda")),
    }


def extras(keys: int) -> dict[str, dict]:
    bias, rows, mix, gain = leaf(H, 41), leaf(1, 41, D), leaf(H, H), leaf(H)
    return {
        "nothing": {},
        "bias": {"relative": Relative(-40, 0, bias)},
        "tables": {"relative": Relative(-20, 20, bias, rows)},
        "slope": {"relative": Relative(0, 0, slope=gain)},
        "cap": {"mods": (Mod(lambda s, b, h, q, k: torch.tanh(s / 3) * 3),)},
        "temperature": {"mods": (Mod(lambda s, b, h, q, k: s * gain[h], (gain,)),)},
        "talking": {"mix": mix, "remix": mix},
        "top-k": {"weigh": partial(weigh.top_k, k=5)},
        "entmax": {"weigh": weigh.entmax15},
        "carry": {"carry": tuple((leaf(B, H, Q, D), leaf(B, G, keys, D)) for _ in range(3))},
    }


@pytest.mark.parametrize(("start", "lead"), [(0, 0), (30, 0), (0, 5)])
@pytest.mark.parametrize("extra", [
    "nothing", "bias", "tables", "slope", "cap", "temperature", "talking", "top-k", "entmax",
    "carry",
])  # fmt: skip
def test_backends_equal_eager_on_a_gpu(start: int, lead: int, extra: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    keys = Q + start
    q, k, v = leaf(B, H, Q, D), leaf(B, G, keys + lead, D), leaf(B, G, keys + lead, D)
    seen = set()
    for name, mask in masks(keys).items():
        plan = Plan(D**-0.5, mask=mask, start=start, lead=lead, **extras(keys + lead)[extra])
        leaves = [q, k, v, *plan.tensors()]
        results = {}
        for backend in BACKENDS:
            if refusal(backend, q, k, v, plan) is None:
                out = attend(q, k, v, plan, backend)
                grads = torch.autograd.grad(out.sum(), leaves, allow_unused=True)
                results[backend] = [out, *(g for g in grads if g is not None)]
        seen |= set(results)
        for backend, found in results.items():
            for ours, theirs in zip(found, results["eager"], strict=True):
                gap = (ours - theirs).norm() / theirs.norm().clamp(min=1e-6)
                assert gap < 2e-3, f"{backend} differs from eager by {gap:.1e} under {name}"
    assert {"eager", "chunked"} <= seen


def test_padding_takes_a_fused_kernel_on_a_gpu() -> None:
    q, k, v = (torch.randn(2, 4, 256, 64, device="cuda", dtype=torch.bfloat16) for _ in "qkv")
    keep = torch.ones(2, 256, dtype=torch.bool, device="cuda")
    plan = Plan(0.125, mask=Causal() & Padding(keep, queries=True))
    assert choose(q, k, v, plan) == "flex"
    assert choose(q, k, v, Plan(0.125, mask=Causal())) == "sdpa"


def test_many_layers_below_never_take_a_kernel_that_has_no_room_for_them() -> None:
    draw = lambda: torch.randn(1, 2, 640, 64, device="cuda", requires_grad=True)
    q, k, v = draw(), draw(), draw()
    below = tuple((draw(), draw()) for _ in range(7))
    plan = Plan(0.05, Causal(), carry=below)
    assert "wider than 256" in str(refusal("flex", q, k, v, plan))
    leaves = [q, k, v, *plan.tensors()]
    found = torch.autograd.grad(attend(q, k, v, plan).sum(), leaves)
    wanted = torch.autograd.grad(attend(q, k, v, plan, "eager").sum(), leaves)
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours - theirs).norm() < 1e-3 * theirs.norm().clamp(min=1e-3)
