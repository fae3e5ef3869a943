"""Sums of scores over layers in Triton equal eager in float64, with all gradients."""

import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from anyformer import build, override, recipe
from anyformer.errors import BackendError
from anyformer.ops.attend import attend, choose, refusal
from anyformer.ops.mask import Causal, Documents, Padding
from anyformer.ops.plan import Plan
from anyformer.ops.relative import Relative
from tests.ops.tile_cases import GPU, WHERE, Case, gaps

pytest.importorskip("triton", reason="layered: Triton isn't installed")


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles, blocks of channels and strips, so that there are several."""
    if GPU:
        return
    from anyformer.ops.kernels import launch_layered, launch_strips
    from anyformer.ops.kernels.launch import Size

    small = dict.fromkeys(launch_layered.TILES, Size(16, 16, 4, 1))
    monkeypatch.setattr(launch_layered, "TILES", small)
    monkeypatch.setattr(launch_layered, "CHANNELS", 16)
    monkeypatch.setattr(launch_strips, "ROOM", 1)


plain = partial(Case, terms="", size=(12, 12), below=2)
CASES = {
    "one layer": plain(below=0, queries=19),
    "two below": plain(queries=21, after=4),
    "blocks that divide the channels": plain((2, 1), 18, size=(16, 9), below=3, causal=True),
    "causal, left padding": plain(causal=True, pads="left", queries=23),
    "shared keys, right padding": plain((4, 2), 17, pads="right", below=1),
    "window, later, persistent keys": plain((2, 1), 18, 5, lead=3, window=7, causal=True),
    "both sides' window": plain(queries=37, after=6, window=9),
    "narrow channels, wider values": plain(size=(5, 20), below=4, causal=True),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    found = gaps(CASES[name], "layered")
    assert max(found.values()) < 1e-5, found


@pytest.mark.parametrize("name", ["two below", "shared keys, right padding"])
def test_equals_eager_in_bfloat16(name: str) -> None:
    found = gaps(replace(CASES[name], dtype=torch.bfloat16, gain=0.5), "layered")
    assert max(found.values()) < 1e-2, found


@pytest.mark.parametrize("seed", range(6))
def test_random_shapes(seed: int) -> None:
    case = drawn(random.Random(seed), most=40, sizes=[3, 8, 16, 20], windows=[0, 0, 11])
    found = gaps(case, "layered")
    assert max(found.values()) < 1e-5, (case, found)


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(60))
def test_random_shapes_on_a_gpu(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch_strips

    draw = random.Random(seed)
    monkeypatch.setattr(launch_strips, "ROOM", draw.choice([1 << 14, 1 << 18, 1 << 25]))
    case = drawn(draw, most=400, sizes=[8, 16, 40, 64, 80, 128], windows=[0, 0, 30, 150])
    dtype = draw.choice([torch.float32, torch.bfloat16, torch.float16])
    found = gaps(replace(case, dtype=dtype), "layered")
    assert max(found.values()) < (1e-5 if dtype == torch.float32 else 1e-2), (case, dtype, found)


def drawn(draw: random.Random, most: int, sizes: list[int], windows: list[int]) -> Case:
    """A case with up to 6 layers below, its scores of the size that one layer has."""
    size, below = draw.choice(sizes), draw.randint(0, 6)
    return Case(
        heads=draw.choice([(4, 4), (4, 2), (2, 1)]),
        queries=draw.randint(2, most),
        start=draw.choice([0, 0, 13]),
        after=draw.choice([0, 21]),
        lead=draw.choice([0, 0, 5, 19]),
        size=(size, draw.choice([size, max(3, size // 2)])),
        terms="",
        causal=draw.random() < 0.5,
        window=draw.choice(windows),
        pads=draw.choice(["", "", "left", "right"]),
        gain=(1 + below) ** -0.5,
        below=below,
    )


def test_rows_without_a_key_give_zeros_and_no_gradient() -> None:
    q, k, v, *below = (torch.randn(2, 1, 18, 8, device=WHERE, requires_grad=True) for _ in range(5))
    keep = torch.ones(2, 18, dtype=torch.bool, device=WHERE)
    keep[1] = False
    out = attend(q, k, v, Plan(0.3, Padding(keep), carry=((below[0], below[1]),)), "layered")
    assert (out[1] == 0).all()
    assert (out[0] != 0).any()
    out.sum().backward()
    for x in (q, k, v, *below):
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert (x.grad[1] == 0).all()


def test_twice_the_same_gradients_bit_for_bit() -> None:
    case = CASES["shared keys, right padding"]
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "layered")
    one, two = (case.results(run, given, torch.float32) for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_a_compiled_graph_has_no_break() -> None:
    case = plain((2, 1), 9, causal=True, lead=2)
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "layered").sin()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    one, two = (case.results(f, given, torch.float32) for f in (run, compiled))
    for name in one:
        torch.testing.assert_close(one[name], two[name])


def test_says_what_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (torch.randn(2, 2, 16, 8, device=WHERE) for _ in "qkv")
    ids = torch.zeros(2, 16, dtype=torch.long)
    says = lambda plan, *x: refusal("layered", *(x or (q, k, v)), plan)
    many = Plan(1.0, Causal(), carry=((q, k),) * 99)
    assert says(many) is None
    assert choose(q, k, v, many) != "layered"  # not yet
    assert says(Plan(1.0, Documents(ids), carry=((q, k),))) == "has no mask Documents"
    bias = Relative(-1, 1, torch.zeros(2, 3))
    assert says(Plan(1.0, None, bias, carry=((q, k),))) == "can't run the plan's relative"
    wide = torch.randn(2, 2, 16, 264, device=WHERE)
    assert says(Plan(1.0), wide, wide, v) is None
    assert says(Plan(1.0), q, k, wide) == "has no tiles for values wider than 256"
    assert "host" in str(says(Plan(1.0, start=torch.zeros(1))))
    with pytest.raises(BackendError, match="can't run the plan's dropout"):
        attend(q, k, v, Plan(1.0, dropout=0.5, carry=((q, k),)), "layered")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert says(many, q.cpu(), k.cpu(), v.cpu()) == "runs on a GPU, or with TRITON_INTERPRET=1"


class Squares(TorchDispatchMode):
    """Counts tensors that hold a score for each of so many queries and keys."""

    def __init__(self, length: int):
        super().__init__()
        self.length, self.found, self.seen = length, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, torch.Tensor):
                self.seen += 1
                self.found += x.dim() > 1 and min(x.shape[-2:]) >= self.length
        return out

    def inside(self, run):
        """The same function; what it makes is counted even within a custom operation."""

        def watched(*args):
            with self:
                return run(*args)

        return watched


def stack_of_four(backend: str) -> torch.nn.Module:
    spec = recipe("decoder", dim=16, heads=2, depth=4, vocab=20, length=LONG)
    for field, value in {"carry": True, "backend": backend, "kv_heads": 1}.items():
        spec = override(spec, f"stack.block.0.branch.{field}", value)
    torch.manual_seed(1)
    return build(spec).to(WHERE)


def trained(model: torch.nn.Module, ids: torch.Tensor) -> list[torch.Tensor]:
    """Answers and all gradients of a step."""
    out = model(ids).logits
    out.square().mean().backward()
    grads = [p.grad for p in model.parameters()]
    assert all(g is not None for g in grads)
    return [out.detach(), *grads]


LONG = 70  # longer than the model is wide


@pytest.mark.parametrize("backend", ["layered", "chunked"])
def test_a_stack_trains_without_a_matrix_of_scores(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anyformer.ops.kernels import launch_layered, launch_strips

    monkeypatch.setattr(launch_strips, "ROOM", 1)  # strips of 16 queries, on a GPU too
    squares, dense = Squares(LONG), Squares(LONG)
    monkeypatch.setattr("anyformer.ops.chunked.SCORES", 1)
    for name in ("forward", "backward"):
        run = getattr(launch_layered, name)
        monkeypatch.setattr(launch_layered, name, squares.inside(run))
    ids = torch.randint(0, 20, (1, LONG), device=WHERE)
    with squares:
        found = trained(stack_of_four(backend), ids)
    with dense:
        wanted = trained(stack_of_four("eager"), ids)
    assert dense.found > 4 and squares.seen > 100
    assert squares.found == 0
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours - theirs).norm() < 1e-5 * theirs.norm().clamp(min=1e-3)


@pytest.mark.gpu
def test_memory_on_a_gpu_is_linear_in_the_length_and_the_depth() -> None:
    def peak(length: int, below: int) -> int:
        leaves = [
            torch.randn(1, 4, length, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3 + 2 * below)
        ]
        q, k, v, *rest = leaves
        plan = Plan(0.02, Causal(), carry=tuple(zip(rest[::2], rest[1::2], strict=True)))
        torch.cuda.reset_peak_memory_stats()
        attend(q, k, v, plan, "layered").sum().backward()
        return torch.cuda.max_memory_allocated()

    peak(1024, 3)
    assert peak(65536, 3) < 2.3 * peak(32768, 3)
    assert peak(32768, 8) < 2.6 * peak(32768, 4)
