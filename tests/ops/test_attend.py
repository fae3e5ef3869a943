"""Which backend runs what, what the others say, equality with eager, and memory."""

from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from anyformer.errors import BackendError
from anyformer.ops import attend as module
from anyformer.ops import weigh
from anyformer.ops.attend import BACKENDS, attend, choose, refusal
from anyformer.ops.mask import Blocks, Causal, Documents, Padding, Prefix, Window
from anyformer.ops.plan import Mod, Plan
from anyformer.ops.relative import Relative

RIGHT = torch.tensor([[True] * 16, [True] * 12 + [False] * 4])
LEFT = RIGHT.flip(1)


def tensors(queries=16, keys=None, heads=4, groups=4, size=8, dtype=torch.float32, learn=False):
    shapes = ((heads, queries), (groups, keys or queries), (groups, keys or queries))
    return [torch.randn(2, n, t, size, dtype=dtype, requires_grad=learn) for n, t in shapes]


def bias(heads=4, reach=5):
    return Relative(-reach, reach, torch.randn(heads, 2 * reach + 1))


def chosen(plan, **shape):
    return choose(*tensors(**shape), plan)


def test_plain_and_causal_float32_are_fused():
    assert chosen(Plan(1.0)) == "sdpa"
    assert chosen(Plan(1.0, mask=Causal())) == "sdpa"
    assert chosen(Plan(1.0, mask=Causal(), dropout=0.1)) == "eager"  # no fused dropout on a CPU
    assert chosen(Plan(1.0, mask=Causal(), start=15), queries=1, keys=16) == "sdpa"
    assert chosen(Plan(1.0, mask=Padding(LEFT))) == "sdpa"
    assert chosen(Plan(1.0, mask=Causal() & Padding(RIGHT, True, True))) == "sdpa"


def test_short_bfloat16_is_written_out_in_a_compiled_graph_where_a_cpu_has_it(monkeypatch):
    causal, last = Plan(1.0, mask=Causal()), Plan(1.0, mask=Causal(), start=15)
    monkeypatch.setattr(module, "FAST_BFLOAT16", True)
    assert chosen(causal, dtype=torch.bfloat16) == "sdpa"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert chosen(causal, dtype=torch.bfloat16) == "eager"
    assert chosen(causal, dtype=torch.bfloat16, queries=64, keys=64) == "halved"
    assert chosen(causal, dtype=torch.bfloat16, queries=513) == "sdpa"
    assert chosen(last, dtype=torch.bfloat16, queries=1, keys=16) == "sdpa"
    assert chosen(causal, dtype=torch.float32) == "sdpa"
    monkeypatch.setattr(module, "FAST_BFLOAT16", False)
    assert chosen(causal, dtype=torch.bfloat16) == "sdpa"


@pytest.mark.parametrize(
    "plan",
    [
        Plan(1.0, relative=bias(), start=1),
        Plan(1.0, mask=Causal() & Window(3)),
        Plan(1.0, mask=Causal() & Padding(LEFT, True)),
        Plan(1.0, mask=Causal() & Documents(torch.zeros(2, 16, dtype=torch.long))),
        Plan(1.0, mask=Blocks(4, 4)),
        Plan(1.0, mask=Causal() | Prefix(torch.tensor([1, 2]))),
        Plan(1.0, mods=(Mod(lambda s, b, h, q, k: s / 2),)),
        Plan(1.0, mix=torch.eye(4)),
        Plan(1.0, remix=torch.eye(4)),
        Plan(1.0, weigh=weigh.entmax15),
    ],
)
def test_the_rest_is_eager_where_small_and_chunked_where_long(plan):
    assert chosen(plan) == "eager"
    assert chosen(plan, queries=2048) == "chunked"


def test_a_bias_is_a_band_where_long():
    for plan in (Plan(1.0, relative=bias()), Plan(1.0, Causal(), bias())):
        assert chosen(plan) == "eager"
        assert chosen(plan, queries=2048) == "band"
    assert chosen(Plan(1.0, relative=bias(reach=1000)), queries=2048) == "chunked"  # all is near


def test_size_decides(monkeypatch):
    plan = Plan(1.0, relative=bias())
    monkeypatch.setattr(module, "SHORT", 16)
    monkeypatch.setattr(module, "SMALL", 0)
    assert chosen(plan, queries=99, keys=16) == "eager"  # linear in the queries
    monkeypatch.setattr(module, "SHORT", 15)
    monkeypatch.setattr(module, "SMALL", 2 * 4 * 16 * 16)
    assert chosen(plan) == "eager"
    monkeypatch.setattr(module, "SMALL", 2 * 4 * 16 * 16 - 1)
    assert chosen(plan) == "chunked"


@pytest.mark.parametrize(
    ("backend", "plan", "says"),
    [
        ("sdpa", Plan(1.0, relative=bias()), "'sdpa' can't run the plan's relative"),
        ("sdpa", Plan(1.0, weigh=weigh.entmax15), "can't run the plan's weigh"),
        ("sdpa", Plan(1.0, mods=(Mod(lambda s, b, h, q, k: s),)), "can't run the plan's mods"),
        ("sdpa", Plan(1.0, mask=Window(2)), "has no mask Window"),
        ("sdpa", Plan(1.0, mask=Padding(LEFT) & Padding(RIGHT)), "one padding mask"),
        ("sdpa", Plan(1.0, mask=Causal() & Padding(LEFT)), "padding is on the right"),
        ("sdpa", Plan(1.0, mask=Causal(), lead=2), "beside memory or a cache on a CPU"),
        ("flex", Plan(1.0, dropout=0.5), "can't run the plan's dropout"),
        ("flex", Plan(1.0, mix=torch.eye(4)), "can't run the plan's mix"),
    ],
)
def test_a_backend_asked_by_name_says_what_it_cannot(backend, plan, says):
    q, k, v = tensors(keys=16 + plan.lead)
    with pytest.raises(BackendError, match=says) as error:
        attend(q, k, v, plan, backend)
    assert "backend='auto'" in str(error.value)


def test_several_fields_are_all_named():
    plan = Plan(1.0, relative=bias(), mix=torch.eye(4), remix=torch.eye(4), weigh=weigh.sparsemax)
    reason = refusal("sdpa", *tensors(), plan)
    assert reason is not None
    assert all(field in reason for field in ("relative", "mix", "remix", "weigh"))


def test_flex_has_no_backward_on_a_cpu():
    with pytest.raises(BackendError, match="no backward pass on a CPU"):
        attend(*tensors(learn=True), Plan(1.0), "flex")


def test_an_unknown_backend_is_named():
    with pytest.raises(BackendError, match="did you mean 'eager'"):
        attend(*tensors(), Plan(1.0), "eagre")


def test_eager_and_chunked_refuse_nothing():
    plan = Plan(1.0, Causal(), bias(), (Mod(lambda s, b, h, q, k: s),), torch.eye(4), weigh.softmax)
    assert refusal("eager", *tensors(), plan) is None
    assert refusal("chunked", *tensors(), plan) is None


FIELDS = {
    "mask": {"mask": Causal()},
    "window": {"mask": Causal() & Window(3)},
    "padding": {"mask": Causal() & Padding(RIGHT, True, True)},
    "left": {"mask": Causal() & Padding(LEFT, True)},
    "keys": {"mask": Padding(LEFT)},
    "relative": {"relative": bias()},
    "mods": {"mods": (Mod(lambda s, b, h, q, k: torch.tanh(s) + 0.1 * h),)},
    "mix": {"mix": torch.randn(4, 4)},
    "remix": {"remix": torch.randn(4, 4)},
    "top-k": {"weigh": partial(weigh.top_k, k=3)},
    "entmax": {"weigh": weigh.entmax15},
    "sparsemax": {"mask": Causal(), "weigh": weigh.sparsemax},
    "scale": {"scale": 2.0},
    "carry": {"carry": ((torch.randn(2, 4, 16, 8), torch.randn(2, 2, 16, 8)),)},
}


# their own files and tests/contracts/test_plan_fields.py have these, with gradients
SLOW = ("flex", "far", "lead", "shelves", "tiles", "sparse", "talking", "layered")
NAMES = [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in BACKENDS]


@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.parametrize("field", FIELDS)
def test_no_field_is_dropped(field, backend, monkeypatch):
    monkeypatch.setattr("anyformer.ops.chunked.SCORES", 600)  # several blocks
    q, k, v = tensors(groups=2)
    plan = Plan(**{"scale": 0.5, **FIELDS[field]})
    if refusal(backend, q, k, v, plan) is not None:
        with pytest.raises(BackendError):
            attend(q, k, v, plan, backend)
        return
    out = attend(q, k, v, plan, backend)
    torch.testing.assert_close(out, attend(q, k, v, plan, "eager"), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(out, attend(q, k, v, Plan(0.5), "eager"), atol=1e-3)


@pytest.mark.parametrize("backend", ["sdpa", "eager", "chunked"])
def test_rows_without_a_key_get_zeros(backend):
    keep = torch.tensor([[True] * 16, [False] * 16])
    q, k, v = tensors(learn=True)
    out = attend(q, k, v, Plan(1.0, mask=Padding(keep)), backend)
    assert (out[1] == 0).all()
    assert (out[0] != 0).all()
    out.sum().backward()
    assert all(t.grad is not None and t.grad.isfinite().all() for t in (q, k, v))


@pytest.mark.parametrize("backend", ["sdpa", "eager", "chunked"])
def test_queries_of_padding_get_zeros(backend):
    out = attend(*tensors(), Plan(1.0, mask=Causal() & Padding(RIGHT, True, True)), backend)
    assert (out[1, :, 12:] == 0).all()
    assert (out[0] != 0).all()
    assert (out[1, :, :12] != 0).all()


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation makes."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for item in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(item, torch.Tensor):
                self.numel = max(self.numel, item.untyped_storage().nbytes() // item.element_size())
        return out


@pytest.mark.parametrize(
    "extra",
    [
        {"relative": Relative(-128, 128, torch.randn(1, 257, requires_grad=True))},
        {"relative": Relative(-64, 64, None, torch.randn(1, 129, 8))},
        {"relative": Relative(-64, 64, None, None, torch.randn(1, 129, 8))},
        {"weigh": weigh.entmax15},
        {"mix": torch.eye(1), "remix": torch.eye(1)},
        {"mask": Causal() & Documents(torch.zeros(1, 4096, dtype=torch.long))},
    ],
)
def test_chunked_never_holds_all_scores(extra):
    length = 4096
    q, k, v = (torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(3))
    with Largest() as largest:
        attend(q, k, v, Plan(0.3, **extra), "chunked").sum().backward()
    assert length * 8 <= largest.numel <= length * length // 8


def test_eager_does_hold_all_scores():
    q, k, v = (torch.randn(1, 1, 256, 8) for _ in range(3))
    with Largest() as largest:
        attend(q, k, v, Plan(0.3), "eager")
    assert largest.numel >= 256 * 256


PLANS = {  # on a GPU, where scores are many
    "sdpa": lambda here: Plan(0.1, Causal()),
    "tiles": lambda here: Plan(0.1, Causal(), Relative(-9, 0, here(4, 10))),
    "shelves": lambda here: Plan(0.1, Causal(), Relative(-9, 0, query=here(4, 10, 64))),
    "sparse": lambda here: Plan(0.1, Causal(), weigh=weigh.entmax15),
    "talking": lambda here: Plan(0.1, Causal(), mix=here(4, 4)),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_gpu_has_kernels_of_our_own_where_scores_are_many(name, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with FakeTensorMode():  # as if there were one
        here = lambda *shape, **kind: torch.empty(shape, device="cuda", **kind)
        made = lambda dtype, length=1024: [here(1, 4, length, 64, dtype=dtype) for _ in range(3)]
        one = lambda *kind: choose(*made(*kind), PLANS[name](here))
        assert one(torch.bfloat16) == one(torch.float16) == name
        others = {one(torch.float32), one(torch.bfloat16, 100)}  # more bits, and few scores
    assert name == "sdpa" or name not in others


@pytest.mark.parametrize("generation", [8, 10])
def test_shelves_are_for_the_gpus_whose_threads_share_products_so(generation, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (generation, 0))
    with FakeTensorMode():
        here = lambda *shape, **kind: torch.empty(shape, device="cuda", **kind)
        q, k, v = (here(1, 4, 1024, 64, dtype=torch.bfloat16) for _ in range(3))
        plan = PLANS["shelves"](here)
        assert choose(q, k, v, plan) == "tiles"
        with pytest.raises(BackendError, match="Hopper's generation"):
            choose(q, k, v, plan, "shelves")
