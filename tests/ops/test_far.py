"""Near keys by tiles and far ones by the library equal eager in float64, with all gradients."""

import random
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from anyformer.ops import far, shelves
from anyformer.ops.attend import attend, choose, refusal
from anyformer.ops.far import alike
from anyformer.ops.mask import Causal, Padding, Window
from anyformer.ops.plan import Plan
from anyformer.ops.relative import Relative
from tests.ops.tile_cases import GPU, WHERE, Case, assert_as_exact_as_can_be, gaps, small_tiles

pytest.importorskip("triton", reason="far: Triton isn't installed")

from anyformer.ops.kernels import (
    launch_backward,
    launch_forward,
    launch_shelves,
    launch_tables,
)
from anyformer.ops.kernels.launch import Size
from anyformer.ops.shelves import lacks

DTYPE = torch.bfloat16 if GPU else torch.float32  # the library's kernels of a GPU are for 16 bits
NEAR = 1e-2 if GPU else 1e-5


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch)


plain = partial(Case, causal=True, size=(16, 16), dtype=DTYPE)
CASES = {
    "bias": plain(queries=41, reach=(-7, 0)),
    "vectors of queries": plain(queries=40, reach=(-9, 0), terms="query", shared=True),
    "both, with shared keys": plain((4, 2), 37, reach=(-5, 2), terms="bias query"),
    "a reach of one": plain(queries=35, reach=(-1, 3), size=(24, 24)),
    "a reach beyond all": plain(queries=20, reach=(-30, 0)),
    "a reach of all but one": plain(queries=20, reach=(-19, 0)),
    "narrow tables": plain(queries=33, reach=(-6, 0), terms="query", width=8),
    "vectors of keys": plain((2, 1), 40, reach=(-9, 0), terms="key"),
    "vectors of both": plain((2, 1), 40, reach=(-9, 2), terms="query key"),
    "vectors of both, and a bias": plain(queries=37, reach=(-5, 0), terms="bias query key"),
    "narrow vectors of both": plain(
        (2, 2), 33, reach=(-6, 0), terms="query key", width=8, shared=True
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    assert_as_exact_as_can_be(CASES[name], "far")


def small_shelves(monkeypatch: pytest.MonkeyPatch) -> None:
    for kernel in () if GPU else launch_shelves.SIZES:
        monkeypatch.setitem(launch_shelves.SIZES, kernel, {2: Size(16, 16, 4, 1)})


@pytest.mark.parametrize("name", [name for name in CASES if "vectors" in name])
def test_near_vectors_may_pass_by_shelves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(shelves, "lacks", lambda *a: seen.append(a) or lacks(*a))
    small_shelves(monkeypatch)
    assert_as_exact_as_can_be(replace(CASES[name], dtype=torch.float16), "far")
    assert seen and lacks(*seen[0]) is None


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(20))
def test_random_shapes_on_a_gpu(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.choice([16, 32, 40, 64, 128])
    case = plain(
        heads=draw.choice([(4, 4), (12, 2), (2, 1)]),
        queries=draw.randint(2, 1500),
        size=(size, size),
        reach=(-draw.choice([1, 16, 64, 128]), draw.choice([0, 5])),
        terms=draw.choice(["bias", "query", "bias query", "query key"]),
        shared=draw.random() < 0.5,
    )
    found = gaps(case, "far")
    assert max(found.values()) < 1e-2, (case, found)


def test_the_low_end_learns_too() -> None:
    """What far keys gain is the table's first row, whose gradient is that of all others, turned."""
    case = CASES["bias"]
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "far")
    slope = case.results(run, given, DTYPE)["bias"].float()
    assert slope[:, 0].abs().min() > 1e-3
    assert slope.sum(1).abs().max() < 10 * NEAR * slope.abs().max()


def test_twice_the_same_gradients_bit_for_bit() -> None:
    case = CASES["both, with shared keys"]
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "far")
    one, two = (case.results(run, given, DTYPE) for _ in range(2))
    wanted = [n for n in one if not GPU or n == "out"]  # cuDNN's dq isn't
    assert all(torch.equal(one[name], two[name]) for name in wanted)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_a_compiled_graph_has_no_break() -> None:
    case = replace(CASES["both, with shared keys"], queries=18)
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "far").sin()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    one, two = (case.results(f, given, DTYPE) for f in (run, compiled))
    for name in one:
        torch.testing.assert_close(one[name], two[name])


def drawn(
    batch: int, heads: int, tokens: int, size: int, reach: int, terms: str, own: int, dtype=DTYPE
) -> tuple[list[Tensor], Relative]:
    """q, k and v, and tables; own: for how many heads those of vectors are."""
    made = lambda *shape: torch.randn(shape, device=WHERE).to(dtype).requires_grad_()
    shapes = {"bias": (heads,), "query": (own,), "key": (own,)}
    wide = {"bias": (), "query": (size,), "key": (size,)}
    tables = {n: made(*shapes[n], reach + 1, *wide[n]) for n in terms.split()}
    return [made(batch, heads, tokens, size) for _ in "qkv"], Relative(-reach, 0, **tables)


@pytest.mark.parametrize("seed", range(8))
def test_turns_give_the_same_gradients(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small_shelves(monkeypatch)
    draw, asked = random.Random(seed), []
    batch, heads = draw.choice([(1, 2), (1, 3), (2, 1), (2, 2), (3, 1)])
    tokens, size, reach = draw.randint(18, 34), draw.choice([16, 24]), draw.randint(1, 12)
    terms = draw.choice(["bias", "query", "key", "bias query", "query key", "bias query key"])
    own, dtype = draw.choice([1, heads]), draw.choice([DTYPE, torch.float16])
    given, near = drawn(batch, heads, tokens, size, reach, terms, own, dtype)
    back, found = far.library_backward, []
    monkeypatch.setattr(far, "library_backward", lambda *a: asked.append(a[1]) or back(*a))
    monkeypatch.setattr(far, "ROWS", 1)
    out = attend(*given, Plan(0.3, Causal(), near), "far")
    weight, leaves = torch.randn_like(out), [*given, *near.tables()]
    for count in (1, draw.randint(2, 6)):
        monkeypatch.setattr(far, "TURNS", count)
        found.append(torch.autograd.grad(out, leaves, weight, retain_graph=True))
    assert len(asked) >= 3 and len(asked[0]) * asked[0].shape[1] == batch * heads
    for one, other in zip(*found, strict=True):
        away = (one.double() - other.double()).norm() / one.double().norm()
        assert away < (NEAR if one.dtype == DTYPE else 1e-3)


@pytest.mark.parametrize("seed", range(40))
def test_each_row_and_head_has_one_turn(seed: int) -> None:
    draw = random.Random(seed)
    batch, heads, tokens = draw.randint(1, 9), draw.randint(1, 16), draw.randint(2, 9000)
    seen = torch.zeros(batch, heads)
    found = far.turns(batch, heads, tokens)
    for turn in found:
        turn.of(seen).add_(1)
    assert (seen == 1).all()
    assert len(found) >= min(far.TURNS, batch * heads * tokens // far.ROWS)
    first = found[0].of(seen).numel() * tokens
    assert len(found) == 1 or 4 * first > far.ROWS, "few rows are not cut any further"


class Held(TorchDispatchMode):
    """Counts the bytes of what operations have made and somebody still holds."""

    def __init__(self, given: list[Tensor]):
        super().__init__()
        self.known = {x.untyped_storage()._cdata for x in given}
        self.made: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and x.untyped_storage()._cdata not in self.known:
                storage = x.untyped_storage()
                self.made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.most = max(self.most, self.now())
        return out

    def now(self) -> int:
        return sum(size for held, size in self.made.values() if not held.expired())


@pytest.mark.skipif(GPU, reason="far: on a GPU all of its memory is counted")
@pytest.mark.parametrize("batch", [1, 4])
def test_little_of_the_library_is_there_at_once(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside dq, dk and dv, whole, those of a turn; and its queries, until kernels start."""
    heads, rows, q, run, kernels = 4 // batch, [], 4 * 2048 * 64 * 4, far.run_backward, []
    for module in (launch_backward, launch_forward, launch_tables):
        monkeypatch.setattr(module, "start", lambda *a: kernels.append(mode.now() / q))
    monkeypatch.setattr(far, "run_backward", lambda *a: rows.extend(a) or run(*a))
    monkeypatch.setattr(far, "ROWS", 1)
    given, terms = drawn(batch, heads, 2048, 64, 2, "key", 1)
    with Held([]) as mode:
        attend(*given, Plan(0.1, Causal(), terms), "far").sum().backward()
    for count in (1, 2, 4):
        monkeypatch.setattr(far, "TURNS", count)
        kernels.clear()
        with torch.no_grad(), Held(rows[0]) as mode:
            far.gradients(*rows)
        assert 3 + 4 / count <= mode.most / q + 0.1 <= 3.2 + 4 / count
        assert 3 + 3 / count <= max(kernels) + 0.1 <= 3.2 + 3 / count


@pytest.mark.gpu
def test_memory_is_that_of_plain_attention_but_for_a_little() -> None:
    given, terms = drawn(4, 12, 8192, 64, 511, "query key", 12)
    weight = torch.randn_like(given[0])

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def peak(run) -> int:
        torch.autograd.grad(run(*given), given, weight)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        torch.autograd.grad(run(*given), given, weight)
        return torch.cuda.max_memory_allocated() - before

    ours = peak(lambda q, k, v: attend(q, k, v, Plan(0.125, Causal(), terms), "far"))
    assert ours < 1.3 * peak(plain)


def test_gradients_lie_as_outputs_do() -> None:
    out = torch.randn(2, 5, 3, 8).transpose(1, 2)
    grad = torch.randn(2, 3, 5, 8)
    found = alike(grad, out)
    assert torch.equal(found, grad) and found.stride() == out.stride()
    assert alike(found, out) is found
    assert alike(torch.ones(()).expand(2, 3, 5, 8), out).stride() == out.stride()


def test_says_what_it_cannot() -> None:
    q, k, v = (torch.randn(2, 2, 16, 16, device=WHERE, dtype=DTYPE) for _ in "qkv")
    table, row = torch.randn(2, 4, device=WHERE), torch.randn(2, 4, 16, device=WHERE)
    terms = Relative(-3, 0, table)
    says = lambda plan: str(refusal("far", q, k, v, plan))
    keep = torch.ones(2, 16, dtype=torch.bool, device=WHERE)
    assert refusal("far", q, k, v, Plan(1.0, Causal(), terms)) is None
    assert choose(q, k, v, Plan(1.0, Causal(), terms)) != "far"  # not yet
    slope = Relative(-3, 0, query=row, slope=table[:, 0])
    assert "and no slope" in says(Plan(1.0, Causal(), slope))
    assert "and no slope" in says(Plan(1.0, Causal()))
    for mask in (None, Causal() & Window(5), Causal() & Padding(keep)):
        assert says(Plan(1.0, mask, terms)) == "needs a causal mask alone"
    assert says(Plan(1.0, Causal(), terms, lead=1)) == (
        "needs queries and keys that are the same tokens"
    )
    narrow = torch.randn(2, 2, 16, 12, device=WHERE, dtype=DTYPE)
    why = refusal("far", narrow, narrow, narrow, Plan(1.0, Causal(), terms))
    assert "a multiple of 8" in str(why)
