"""No option of a plan is silently dropped: a backend honours it as eager does, or refuses.

Letters: B batch, H heads, Q queries, K keys, D head size, R rows of a table.
"""

import dataclasses
from functools import partial

import pytest
import torch

from anyformer.errors import BackendError
from anyformer.ops import weigh as W
from anyformer.ops.attend import BACKENDS, attend, refusal
from anyformer.ops.mask import Blocks, Causal, Documents, Drawn, Mask, Padding, Prefix, Window
from anyformer.ops.plan import Mod, Plan
from anyformer.ops.relative import Relative
from anyformer.ops.tiles import INSTALLED

B, H, Q, K, D, R = 2, 4, 6, 6, 8, 7
MEMO = "chosen"  # remembers the backend: nothing that a plan asks for
PLACES = {"scale", "start", "lead"}  # numbers that every backend must read: nothing is asked


def _random(*shape: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=made, dtype=torch.float64).requires_grad_()


GAIN = _random(H)
REAL = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]).bool()
IDS = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 2, 2]])
EXAMPLES = {
    "scale": [0.9],
    "mask": [
        Causal(),
        Window(2),
        Padding(REAL),
        Padding(REAL, queries=True, right=True),
        Padding(REAL.flip(1), queries=True),
        Documents(IDS),
        Causal() | Prefix(torch.tensor([2, 4])),
        Causal() & Window(2) & Padding(REAL, queries=True, right=True),
        Blocks(size=1, count=6, near=1) | Drawn(1, (torch.arange(24) % 6).view(4, 6, 1)),
    ],
    "relative": [
        Relative(-3, 3, bias=_random(H, R)),
        Relative(-3, 3, query=_random(1, R, D)),
        Relative(-3, 3, key=_random(H, R, D)),
        Relative(0, 0, slope=_random(H)),
        Relative(-3, 3, _random(H, R), _random(1, R, D), _random(H, R, D), _random(H)),
    ],
    "mods": [
        (Mod(lambda s, b, h, q, k: torch.tanh(s)),),
        (Mod(lambda s, b, h, q, k: s * GAIN[h], (GAIN,)),),
        (Mod(lambda s, b, h, q, k: s + 0.1 * (q - k)),),
    ],
    "mix": [_random(H, H)],
    "weigh": [partial(W.top_k, k=2), W.entmax15, W.sparsemax, partial(W.sigmoid, bias=-1.0)],
    "remix": [_random(H, H)],
    "dropout": [0.5],
    "start": [2],
    "lead": [2],
    "carry": [
        ((_random(B, H, Q, D), _random(B, H // 2, K, D)),),
        (
            (_random(B, H, Q, D + 1), _random(B, H, K, D + 1)),
            (_random(B, H, Q, 3), _random(B, 1, K, 3)),
        ),
    ],
}
CASES = [(field, i) for field, values in EXAMPLES.items() for i in range(len(values))]


SPECIAL = {
    "band",
    "far",
    "lead",
    "one",
    "shelves",
    "sparse",
    "talking",
}  # backends that want a certain kind of plan, and say so
NARROW = dict.fromkeys(("far", "lead", "tiles", "sparse", "talking", "layered"), torch.float32) | {
    "shelves": torch.float16
}  # backends without float64
NEAR = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2}
NAMES = [
    pytest.param(name, marks=pytest.mark.skipif(not INSTALLED, reason="needs Triton"))
    if name in NARROW
    else name
    for name in BACKENDS
]


def _inputs(name: str = "eager") -> list[torch.Tensor]:
    shapes = ((B, H, Q, D), (B, H // 2, K + 1, D), (B, H // 2, K, D))
    q, k, v = (_random(*shape).to(NARROW.get(name, torch.float64)) for shape in shapes)
    return [q, k[:, :, :K], v]


def _plans(field: str, example: int) -> tuple[Plan, Plan]:
    """A plan without and with a field; where it says who stands where, somebody must look."""
    base = Plan(0.3, mask=Causal() if field in ("start", "lead") else None)
    return base, dataclasses.replace(base, **{field: EXAMPLES[field][example]})


def _run(name: str, plan: Plan) -> list[torch.Tensor]:
    """The output and every gradient; FlexAttention has none on a CPU."""
    torch.manual_seed(1)
    q, k, v = _inputs(name)
    if name == "flex":
        with torch.no_grad():
            return [attend(q, k, v, plan, name)]
    out = attend(q, k, v, plan, name)
    loss = (out.double().sin() * torch.linspace(0.5, 2, D).double()).sum()
    leaves = [t for t in (q, k, v, *plan.tensors()) if t.requires_grad]
    return [out.detach(), *torch.autograd.grad(loss, leaves)]


def _refused(name: str, plan: Plan) -> str | None:
    with torch.set_grad_enabled(name != "flex"):
        return refusal(name, *_inputs(name), plan)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("field", "example"), CASES)
def test_a_field_changes_the_result_and_equals_eager(field, example, name):
    base, plan = _plans(field, example)
    if _refused(name, plan) is not None:
        with pytest.raises(BackendError), torch.no_grad():
            attend(*_inputs(name), plan, name)
        return
    found, wanted = _run(name, plan), _run("eager", plan)
    assert not torch.allclose(wanted[0], _run("eager", base)[0])
    if field == "dropout":
        assert not torch.allclose(found[0], wanted[0] * 0 + _run("eager", base)[0])
        return
    assert len(found) == (1 if name == "flex" else len(wanted))
    for a, b in zip(found, wanted, strict=name != "flex"):
        near = NEAR[NARROW.get(name, torch.float64)]
        torch.testing.assert_close(a.double(), b, rtol=near, atol=near)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("field", "example"), CASES)
def test_a_backend_asked_too_much_names_the_field(field, example, name):
    _, plan = _plans(field, example)
    beyond = [f for need, f in plan.needs().items() if need not in BACKENDS[name].can]
    reason = _refused(name, plan)
    if not beyond:
        open_ = field in ("mask", "start", "lead", "dropout") or name in SPECIAL
        assert reason is None or open_, reason
        return
    with pytest.raises(BackendError, match=field), torch.no_grad():
        attend(*_inputs(), plan, name)


def test_every_field_has_an_example_here():
    assert EXAMPLES.keys() | {MEMO} == {field.name for field in dataclasses.fields(Plan)}


def test_every_mask_has_an_example_here():
    seen: set[type] = set()
    todo = [m for m in EXAMPLES["mask"] if isinstance(m, Mask)]
    while todo:
        mask = todo.pop()
        seen.add(type(mask))
        inner = [getattr(mask, f.name) for f in dataclasses.fields(mask)]
        todo += [m for m in inner if isinstance(m, Mask)]
    assert seen == set(Mask.__subclasses__())


@pytest.mark.parametrize(("field", "example"), CASES)
def test_needs_names_every_field_that_is_set(field, example):
    asked = ", ".join(_plans(field, example)[1].needs().values())
    assert (field in asked.split(", ")) == (field not in PLACES)


@pytest.mark.parametrize("name", [n for n, b in BACKENDS.items() if "dropout" in b.can])
def test_dropout_keeps_the_mean_and_its_draws_backwards(name):
    base, plan = _plans("dropout", 0)
    q, k, v = _inputs()
    if (reason := _refused(name, plan)) is not None:
        assert name == "sdpa" and "dropout on a CPU" in reason
        return
    with torch.no_grad():
        draws = torch.stack([attend(q, k, v, plan, name) for _ in range(600)])
        wanted = attend(q, k, v, base, "eager")
    assert (draws.mean(0) - wanted).abs().max() < 0.5 * draws.std()
    out = attend(q, k, v, plan, name)
    (dv,) = torch.autograd.grad(out.sum(), v)  # the output is linear in v, draw by draw
    torch.testing.assert_close((dv * v).sum(), out.sum())
