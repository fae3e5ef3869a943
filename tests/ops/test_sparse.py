"""Top-k and entmax in Triton equal eager in float64, with all gradients; on a CPU interpreted."""

import random
from dataclasses import replace
from functools import partial

import pytest
import torch

from anyformer.errors import BackendError
from anyformer.ops import weigh as W
from anyformer.ops.attend import attend, choose, refusal
from anyformer.ops.eager import eager
from anyformer.ops.mask import Causal, Documents, Padding
from anyformer.ops.plan import Plan
from tests.ops.tile_cases import (
    GPU,
    WHERE,
    Case,
    assert_as_exact_as_can_be,
    gaps,
    rounded,
    small_tiles,
)

pytest.importorskip("triton", reason="sparse: Triton isn't installed")


def top(k: int) -> W.Weigh:
    return partial(W.top_k, k=k)


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of 16 scores are too short for some rows, which need further passes."""
    small_tiles(monkeypatch)
    if not GPU:
        from anyformer.ops.kernels import launch_sparse

        monkeypatch.setattr(launch_sparse, "LIST", 16)
        monkeypatch.setattr(launch_sparse, "PROGRAMS", 3)


plain = partial(Case, terms="", causal=True)
CASES = {
    "top-k": plain(queries=33, weigh=top(3)),
    "top-k of more than a tile": plain(queries=11, after=43, causal=False, weigh=top(20)),
    "top-k among flat scores": plain(queries=20, gain=0.01, weigh=top(14)),
    "top-k with ties": plain(queries=33, size=(4, 8), whole=True, weigh=top(5)),
    "top-k with ties beyond the list": plain(
        queries=5, after=43, size=(4, 8), whole=True, causal=False, weigh=top(18)
    ),
    "top-k of equal scores": plain(queries=20, gain=0.0, weigh=top(4)),
    "top-k of as many as there are": plain(queries=9, weigh=top(9)),
    "top-k, everything": Case(
        (2, 1), 14, 5, 3, 7, window=17, pads="left", causal=True, reach=(-4, 3), weigh=top(5)
    ),
    "entmax": plain(queries=37, weigh=W.entmax15),
    "entmax of flat scores": plain(queries=11, after=43, causal=False, gain=0.2, weigh=W.entmax15),
    "entmax of equal scores": plain(queries=20, gain=0.0, weigh=W.entmax15),
    "entmax of steep scores": plain(queries=20, gain=30.0, weigh=W.entmax15),
    "top-k and a slope": Case((2, 1), 21, 5, 3, 2, terms="slope", pads="r", weigh=top(5)),
    "entmax and a slope": Case(
        terms="bias slope", queries=33, causal=True, reach=(-4, 0), lead=3, weigh=W.entmax15
    ),
    "entmax, everything": Case(
        (2, 1), 14, 5, 3, 2, terms="bias query", causal=True, pads="r", weigh=W.entmax15
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    found = gaps(CASES[name], "sparse")
    assert max(found.values()) < 1e-5, found


@pytest.mark.parametrize("name", ["entmax of flat scores", "top-k with ties"])
def test_equals_eager_in_bfloat16(name: str) -> None:
    found = gaps(replace(CASES[name], dtype=torch.bfloat16), "sparse")
    assert max(found.values()) < 1e-2, found


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(60))
def test_random_shapes_on_a_gpu(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.choice([8, 16, 40, 64, 80, 128])
    entmax = draw.random() < 0.5
    case = Case(
        heads=draw.choice([(4, 4), (4, 2), (4, 1)]),
        queries=draw.randint(2, 700),
        start=draw.choice([0, 0, 33]),
        after=draw.choice([0, 50]),
        lead=draw.choice([0, 0, 5, 70]),
        size=(size, draw.choice([size, max(8, size // 2)])),
        reach=(-40, draw.choice([0, 40])),
        terms=draw.choice(["", "", "bias", "query key", "slope"]),
        causal=draw.random() < 0.5,
        window=draw.choice([0, 0, 150]),
        pads=draw.choice(["", "", "left", "right"]),
        weigh=W.entmax15 if entmax else top(draw.choice([1, 8, 64, 100, 200])),
        gain=draw.choice([0.1, 1.0, 3.0]),
        # in 16 bits scores round otherwise than in float64, and another one may be the k-th
        dtype=draw.choice([torch.float32, torch.bfloat16]) if entmax else torch.float32,
    )
    given = case.tensors()
    while not entmax and least_gap(case, given) < 1e-5:
        given = case.tensors()
    assert_as_exact_as_can_be(case, "sparse", {n: t.to(case.dtype) for n, t in given.items()})


def test_the_largest_alone_gives_scores_what_sums_in_another_order_leave() -> None:
    case = Case((4, 1), 20, 9, lead=5, size=(80, 80), terms="query key", weigh=top(1), gain=3.0)
    given = case.tensors()
    assert least_gap(case, given) > 1e-5
    assert 0 < gaps(case, "sparse", given)["query"] < rounded(case, given)["query"] < 1e-3
    assert gaps(case, "eager", given)["query"] == 0
    assert_as_exact_as_can_be(case, "sparse", given)


def least_gap(case: Case, given: dict[str, torch.Tensor]) -> float:
    """How near the k-th score of a row comes to the next: nearer, float32 may take the other."""
    assert isinstance(case.weigh, partial)
    count, found = case.weigh.keywords["k"], [float("inf")]

    def weigh(scores: torch.Tensor) -> torch.Tensor:
        if count < scores.shape[-1]:
            last, after = scores.topk(count + 1, -1).values[..., -2:].unbind(-1)
            seen = after > torch.finfo(scores.dtype).min
            found.extend((last - after)[seen].tolist())
        return scores.softmax(-1)

    wide = {n: t.double() for n, t in given.items()}
    eager(wide["q"], wide["k"], wide["v"], replace(case.plan(wide), weigh=weigh))
    return min(found)


def test_the_gap_below_the_last_of_the_k_is_seen() -> None:
    q, k = torch.eye(4)[None, None, :1], torch.tensor([4.0, 3, 2.5, 1])[None, None, :, None]
    k = k * torch.eye(4)[0]
    for count, gap in ((1, 1.0), (2, 0.5), (3, 1.5), (4, float("inf"))):
        case = Case(size=(4, 4), terms="", queries=1, weigh=top(count))
        found = least_gap(case, {"q": q * 2, "k": k, "v": k})  # the scale is a half
        assert found == gap


@pytest.mark.parametrize("count", [4, 8, 12])
def test_large_scores_in_one_strip_are_all_found(count: int) -> None:
    """Strips keep five scores, of which more are asked for here: lists have them."""
    strips = 64 if GPU else 16
    long = (20, 11 * strips, 11 * strips)
    q, k, v = (torch.randn(1, 1, n, 8, device=WHERE, dtype=torch.float64) for n in long)
    q[..., 0], k[..., 0] = 4.0, 0.0
    k[:, :, 3::strips, 0] = 6.0
    plan = Plan(0.35, weigh=top(count))
    ours = attend(q.float(), k.float(), v.float(), plan, "sparse")
    torch.testing.assert_close(ours.double(), eager(q, k, v, plan), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("weigh", [top(3), W.entmax15])
def test_rows_without_a_key_give_zeros_and_no_gradient(weigh: W.Weigh) -> None:
    q, k, v = (torch.randn(2, 1, 18, 8, device=WHERE, requires_grad=True) for _ in "qkv")
    keep = torch.ones(2, 18, dtype=torch.bool, device=WHERE)
    keep[1] = False
    out = attend(q, k, v, Plan(0.3, Padding(keep), weigh=weigh), "sparse")
    assert (out[1] == 0).all()
    assert (out[0] != 0).any()
    out.sum().backward()
    for x in (q, k, v):
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert (x.grad[1] == 0).all()


def test_twice_the_same_gradients_bit_for_bit() -> None:
    case = CASES["top-k with ties beyond the list"]
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "sparse")
    one, two = (case.results(run, given, torch.float32) for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
@pytest.mark.parametrize("weigh", [top(3), W.entmax15])
def test_a_compiled_graph_has_no_break(weigh: W.Weigh) -> None:
    case = plain(queries=9, lead=2, weigh=weigh)
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "sparse").sin()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    one, two = (case.results(f, given, torch.float32) for f in (run, compiled))
    for name in one:
        torch.testing.assert_close(one[name], two[name])


def test_says_what_it_cannot() -> None:
    q, k, v = (torch.randn(2, 2, 16, 8, device=WHERE) for _ in "qkv")
    says = lambda plan: refusal("sparse", q, k, v, plan)
    assert says(Plan(1.0, Causal(), weigh=top(3))) is None
    assert choose(q, k, v, Plan(1.0, Causal(), weigh=top(3))) != "sparse"  # not yet
    assert says(Plan(1.0)) == "has the weigh top_k and entmax15 alone"
    assert says(Plan(1.0, weigh=W.sparsemax)) == "has the weigh top_k and entmax15 alone"
    assert "mix" in str(says(Plan(1.0, weigh=top(3), mix=torch.eye(2))))
    ids = torch.zeros(2, 16, dtype=torch.long)
    assert says(Plan(1.0, Documents(ids), weigh=top(3))) == "has no mask Documents"
    with pytest.raises(BackendError, match="can't run the plan's dropout"):
        attend(q, k, v, Plan(1.0, dropout=0.5, weigh=W.entmax15), "sparse")


@pytest.mark.gpu
@pytest.mark.parametrize("weigh", [top(64), W.entmax15])
def test_memory_on_a_gpu_is_linear_in_the_length(weigh: W.Weigh) -> None:
    def peak(length: int) -> int:
        q, k, v = (
            torch.randn(1, 4, length, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in "qkv"
        )
        torch.cuda.reset_peak_memory_stats()
        attend(q, k, v, Plan(0.1, Causal(), weigh=weigh), "sparse").sum().backward()
        return torch.cuda.max_memory_allocated()

    peak(1024)
    assert peak(16384) < 2.3 * peak(8192)
