"""The kernel of torch's fused attention: measured once for each shape, and remembered."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from anyformer import recipe
from anyformer.model.model import build
from anyformer.ops import fastest, sdpa, stopwatch
from anyformer.ops.exact import exact
from anyformer.ops.fastest import Found, Shape, fused
from anyformer.ops.mask import Causal, Padding
from anyformer.ops.plan import Plan

OWN = ["flash", "efficient", "math", "cudnn"]  # the order of torch
MATH = Found("flash", {"flash": 2.0, "math": 1.0})  # both are there on a CPU


class Clock:
    """Times that are given, and the shapes that they were asked for."""

    def __init__(self, found: Found) -> None:
        self.found, self.asked = found, []

    def __call__(self, shape: Shape) -> Found:
        torch.rand(3)  # as dropout would draw
        self.asked.append(shape)
        return self.found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A CPU with kernels to choose from, and nothing remembered."""
    clock = Clock(MATH)
    monkeypatch.setattr(fastest, "measured_on", lambda device: True)
    monkeypatch.setattr(fastest, "measure", clock)
    monkeypatch.setattr(fastest, "WORTH", 0)
    monkeypatch.setattr(fastest, "_found", {})
    yield clock
    assert torch._C._get_sdp_priority_order()[0] == SDPBackend.FLASH_ATTENTION.value
    assert all(fastest.allowed())


def draw(length: int = 8, learn: bool = False, groups: int = 4, **kind: Any) -> list[Any]:
    heads = (4, groups, groups)
    return [torch.randn(2, h, length, 8, requires_grad=learn, **kind) for h in heads]


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Kernels that torch may take, in its order, at each attention; a CPU heeds only which."""
    noted, run = [], fastest._run

    def noting(*given: Any) -> Tensor:
        names = {kernel.value: name for name, kernel in fastest.KERNELS.items()}
        may = dict(zip(names.values(), fastest.allowed(), strict=True))
        order = [names[i] for i in torch._C._get_sdp_priority_order() if i in names]
        noted.append([name for name in order if may[name]])
        return run(*given)

    monkeypatch.setattr(fastest, "_run", noting)
    return noted


def test_a_shape_is_measured_once_and_remembered(clock: Clock) -> None:
    q, k, v = draw()
    first = fused(q, k, v, causal=True)
    for _ in range(3):
        assert torch.equal(fused(q, k, v, causal=True), first)
    assert len(clock.asked) == 1
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(first, wanted, atol=1e-6)


def test_the_fastest_comes_first(clock: Clock, orders: list[list[str]]) -> None:
    tensors = draw()
    fused(*tensors)
    clock.found = Found("flash", {"flash": 1.0, "math": 2.0})
    fastest._found.clear()
    fused(*tensors)
    assert orders == [["math", "flash", "cudnn", "efficient"], OWN]


@pytest.mark.parametrize(
    ("found", "order"),
    [
        (Found("flash", {"flash": 2.0, "cudnn": 1.0}), "cudnn flash efficient math"),
        (Found("flash", {"flash": 1.0, "cudnn": 2.0}), ""),
        (Found("flash", {"flash": 1.04, "cudnn": 1.0}), ""),  # too near to leave torch's own
        (Found("cudnn", {"flash": 2.0, "efficient": 1.0}), "efficient flash cudnn math"),
        (Found("flash", {"flash": 2.0}), ""),
        (Found(why="no room"), ""),
    ],
)
def test_times_decide_the_order(found: Found, order: str) -> None:
    assert found.order == order


def test_all_that_matters_is_asked_apart(clock: Clock) -> None:
    q, k, v = draw()
    keep = torch.ones(2, 1, 1, 8, dtype=torch.bool)
    fused(q, k, v)
    fused(q, k, v, causal=True)
    fused(q, k, v, mask=keep)
    fused(q, k, v, mask=keep.to(q.dtype))
    fused(q, k, v, dropout=0.5)
    fused(*draw(9))
    fused(*draw(groups=2))
    fused(*draw(learn=True))
    fused(*draw(dtype=torch.float64))
    with torch.autocast("cpu", torch.bfloat16):
        fused(q, k, v)
    assert len(clock.asked) == len(set(clock.asked)) == 10
    assert clock.asked[-1].dtype == torch.bfloat16
    with torch.no_grad():
        fused(*draw(learn=True))  # as without gradients
    fused(q, k, v, scale=3.0)
    assert len(clock.asked) == 10


def test_what_measuring_draws_is_not_missed(clock: Clock) -> None:
    tensors = draw()
    answers = []
    for _ in range(2):  # measured the first time
        torch.manual_seed(3)
        answers.append((fused(*tensors, dropout=0.5), torch.rand(4)))
    assert len(clock.asked) == 1
    assert all(torch.equal(*pair) for pair in zip(*answers, strict=True))


def test_measuring_sees_nothing_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def measure(shape: Shape) -> Found:
        x = torch.ones(2, requires_grad=True)
        torch.autograd.grad((x * x).sum(), x)
        seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), x.is_inference()))
        return MATH

    monkeypatch.setattr(fastest, "measure", measure)
    shape = Shape((1, 1, 2, 2), (1, 1, 2, 2), None, None, True, False, True, torch.float32,
                  torch.device("cpu"))  # fmt: skip
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert fastest.measured(shape) is MATH
    assert seen == [(True, False, False)]


def test_nothing_is_measured_while_a_graph_is_captured(
    clock: Clock, orders: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, new = draw(8), draw(9)
    fused(*known)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    fused(*known)
    fused(*new)
    assert orders[0] == orders[1] and orders[2] == OWN  # what is remembered, else torch's
    assert len(clock.asked) == 1
    assert not fastest.undisturbed()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert fastest.undisturbed()


def test_nothing_is_measured_within_a_backward_pass(clock: Clock) -> None:
    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *up: Tensor) -> Tensor:
            fused(*draw())
            return up[0]

    Again.apply(torch.ones(1, requires_grad=True)).sum().backward()
    assert not clock.asked
    fused(*draw())
    assert len(clock.asked) == 1


def test_no_clock_decides_in_deterministic_mode(clock: Clock, orders: list[list[str]]) -> None:
    tensors = draw()
    fused(*tensors)  # math is remembered
    with exact():
        fused(*tensors)
        fused(*draw(9))
    fused(*tensors)
    own = [name for name in OWN if name != "efficient"]  # which sums in any order
    assert orders[1:3] == [own, own] and orders[0] == orders[3] != OWN
    assert len(clock.asked) == 1


def test_a_kernel_that_is_named_is_taken(clock: Clock, orders: list[list[str]]) -> None:
    tensors = draw()
    fused(*tensors)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        fused(*tensors)
    assert orders[1] == ["flash", "efficient"]
    assert len(clock.asked) == 2  # other kernels are another question


def test_a_kernel_that_refuses_leaves_it_to_the_next(clock: Clock, orders: list[list[str]]) -> None:
    clock.found = Found("flash", {"cudnn": 1.0, "flash": 3.0})  # a CPU has no cuDNN
    q, k, v = draw()
    wanted = F.scaled_dot_product_attention(q, k, v)
    assert torch.equal(fused(q, k, v), wanted)
    assert orders == [["cudnn", "flash", "efficient", "math"]]


def test_few_scores_and_many_shapes_are_not_measured(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastest, "WORTH", 2 * 4 * 9 * 9)
    monkeypatch.setattr(fastest, "MOST", 2)
    for length in (8, 9, 10, 11, 9):
        fused(*draw(length))
    assert [shape.q[2] for shape in clock.asked] == [9, 10]


def test_on_a_cpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(MATH)
    monkeypatch.setattr(fastest, "measure", clock)
    monkeypatch.setattr(fastest, "WORTH", 0)
    fused(*draw())
    assert not clock.asked


def test_the_backend_asks(clock: Clock) -> None:
    q, k, v = draw()
    keep = torch.ones(2, 8, dtype=torch.bool)
    sdpa.sdpa(q, k, v, Plan(1.0, mask=Causal()))
    sdpa.sdpa(q, k, v, Plan(1.0, mask=Padding(keep)))
    assert [(shape.causal, shape.mask) for shape in clock.asked] == [
        (True, None), (False, (2, 1, 1, 8))]  # fmt: skip


def test_a_compiled_model_is_one_graph_and_measured_while_traced(clock: Clock) -> None:
    model = build(recipe("decoder", dim=32, depth=2, heads=4, vocab=50, length=64))
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for length in (16, 17, 18):
        ids = torch.randint(0, 50, (2, length))
        loss = compiled(ids, labels=ids).loss
        assert len(clock.asked) == 1  # the second graph is for all lengths
        loss.backward()
        with exact():
            assert torch.allclose(loss, model(ids, labels=ids).loss)
    assert clock.asked[0].q == (2, 4, 16, 8) and clock.asked[0].learns


def test_the_graph_has_the_kernel_that_was_chosen(clock: Clock) -> None:
    graphs = []

    def keep(graph: torch.fx.GraphModule, inputs: object) -> Any:
        graphs.append(graph.code)
        return graph.forward

    tensors = draw()
    for found in (MATH, Found("flash", {"flash": 1.0, "math": 2.0})):
        torch._dynamo.reset()
        fastest._found.clear()
        clock.found = found
        compiled = torch.compile(fused, fullgraph=True, backend=keep)
        assert torch.allclose(compiled(*tensors), fused(*tensors), atol=1e-6)
    named = re.findall(r"_backend_from_string\('(\w+)'\)", graphs[0])
    assert named[:2] == ["MATH", "FLASH_ATTENTION"]
    assert "_sdpa_kernel" not in graphs[1]  # the graph is as without a choice
    assert len(clock.asked) == 2


def test_a_graph_of_all_lengths_takes_the_order_of_torch(clock: Clock) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
    q, k, v = draw(12)
    for x in (q, k, v):
        torch._dynamo.mark_dynamic(x, 2)
    assert torch.allclose(compiled(q, k, v), F.scaled_dot_product_attention(q, k, v), atol=1e-6)
    assert not clock.asked


def test_what_is_needed_by_count() -> None:
    shape = Shape((2, 4, 8, 16), (2, 2, 8, 16), None, None, True, False, False, torch.bfloat16,
                  torch.device("cpu"))  # fmt: skip
    assert stopwatch.needed(shape) == 4 * 2 * 4 * 8 * 16 * 2
    assert stopwatch.needed(shape._replace(learns=True)) == 4 * 2 * 4 * 8 * 16 * (2 + 2 + 4)


def test_a_shape_without_room_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape((2, 4, 8, 16), (2, 2, 8, 16), None, None, True, False, True, torch.bfloat16,
                  torch.device("cpu"))  # fmt: skip
    monkeypatch.setattr(stopwatch, "free", lambda device: 2 * stopwatch.needed(shape) - 1)
    found = stopwatch.measure(shape)
    assert "too little memory" in found.why and not found.order


@pytest.mark.gpu
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("drop", [0.0, 0.1])
def test_a_gpu_measures_takes_the_fastest_and_draws_as_before(
    learn: bool, drop: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastest, "_found", {})
    size = (4, 8, 1024, 64)
    q, k, v = (
        torch.randn(size, device="cuda", dtype=torch.bfloat16, requires_grad=learn) for _ in "qkv"
    )
    before = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(1)
    fused(q, k, v, causal=True, dropout=drop)
    measured, drawn = torch.cuda.get_rng_state(), fastest._found.copy()
    torch.cuda.manual_seed(1)
    out = fused(q, k, v, causal=True, dropout=drop)
    assert torch.equal(torch.cuda.get_rng_state(), measured)
    torch.cuda.set_rng_state(before)
    assert len(drawn) == 1 and fastest._found == drawn
    (found,) = drawn.values()
    assert found.times and found.own in found.times and all(t > 0 for t in found.times.values())
    if not drop:
        wanted = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
        assert (out - wanted).norm() < 2e-2 * wanted.norm()
    if learn:
        assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.gpu
def test_a_gpu_measures_while_a_block_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "_found", {})
    torch._dynamo.reset()
    compiled = torch.compile(fused, fullgraph=True)
    q, k, v = (torch.randn(4, 8, 1024, 64, device="cuda", dtype=torch.bfloat16) for _ in "qkv")
    out = compiled(q, k, v, causal=True)
    assert len(fastest._found) == 1
    assert (out - fused(q, k, v, causal=True)).norm() < 2e-2 * out.norm()


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("mask", [None, torch.bool, torch.float32])
def test_a_trial_is_an_attention_of_its_shape(learns: bool, mask: torch.dtype | None) -> None:
    size = None if mask is None else (2, 1, 1, 6)
    shape = Shape((2, 4, 6, 8), (2, 2, 6, 8), size, mask, mask is None, False, learns,
                  torch.float32, torch.device("cpu"))  # fmt: skip
    trial = stopwatch.Trial(shape)
    assert trial.q.shape == shape.q and trial.k.shape == trial.v.shape == shape.k
    assert trial.q.transpose(1, 2).is_contiguous() and trial.q.requires_grad == learns
    trial.run()
    assert trial.own() in ("flash", "math") and trial.takes() == []  # of a GPU, none
    assert "no fused kernel alone takes it" in stopwatch._raced(trial).why


def test_kernels_that_run_are_raced_and_the_best_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape((1, 1, 4, 8), (1, 1, 4, 8), None, None, True, False, False, torch.float32,
                  torch.device("cpu"))  # fmt: skip
    trial, times = stopwatch.Trial(shape), iter([4.0, 3.0, 2.0, 5.0, 9.0, 1.0, 2.5, 7.0])
    monkeypatch.setattr(trial, "takes", lambda: ["cudnn", "flash", "efficient"])
    monkeypatch.setattr(stopwatch, "_runs", lambda trial, name: name != "efficient")
    monkeypatch.setattr(stopwatch, "_timed", lambda trial, name, calls: next(times))
    assert stopwatch._raced(trial).times == {"cudnn": 2.0, "flash": 1.0}
    long = iter([20.0, 30.0])
    monkeypatch.setattr(stopwatch, "_timed", lambda trial, name, calls: next(long))
    assert stopwatch._raced(trial).times == {"cudnn": 20.0, "flash": 30.0}  # once
