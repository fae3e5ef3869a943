"""The Triton kernels equal eager in float64, outputs and all gradients; on a CPU interpreted."""

import random
from dataclasses import replace

import pytest
import torch

from anyformer.errors import BackendError
from anyformer.ops import tiles as module
from anyformer.ops.attend import attend, choose, refusal
from anyformer.ops.mask import Causal, Documents, Padding, Window
from anyformer.ops.plan import Plan
from anyformer.ops.relative import Relative
from tests.ops.tile_cases import WHERE, Case, assert_as_exact_as_can_be, gaps, small_tiles

pytest.importorskip("triton", reason="tiles: Triton isn't installed")


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch)


CASES = {
    "no table, no mask": Case(terms="", after=4),
    "bias": Case(after=11),
    "T5": Case(causal=True, queries=37, reach=(-9, 0), heads=(2, 2)),
    "ALiBi, to the last distance": Case((2, 1), causal=True, reach=(-20, 0)),
    "window": Case(causal=True, window=6, queries=40, terms="bias query", reach=(-3, 0)),
    "both sides' window, persistent keys": Case(window=9, lead=19, terms="bias key", after=5),
    "left padding": Case(causal=True, pads="left", terms="bias"),
    "Shaw": Case(terms="query", shared=True, queries=35),
    "both sides' vectors": Case(terms="query key", shared=True, pads="right", heads=(2, 1)),
    "Transformer-XL": Case(causal=True, start=18, terms="bias query", reach=(-38, 0)),
    "narrower tables and values": Case(terms="query key", width=5, size=(20, 9), causal=True),
    "everything": Case(
        (2, 1), 21, 5, 3, 2, terms="bias query key", causal=True, window=17, pads="r"
    ),
    "one row of a table": Case(reach=(0, 0), terms="bias query", lead=3),
    "rows of the past alone": Case(reach=(-9, -3), causal=True, queries=37, start=3),
    "slope": Case(terms="slope", after=11, queries=37),
    "ALiBi": Case((2, 1), terms="slope", causal=True, queries=37, after=2),
    "slope, persistent keys": Case(terms="slope", causal=True, start=18, lead=5, window=20),
    "slope and all tables": Case(
        (2, 1), 21, 5, 3, 2, terms="bias query key slope", window=17, pads="r"
    ),
    "rows on one side only": Case(reach=(2, 6), terms="bias key", causal=True, lead=2),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    assert_as_exact_as_can_be(CASES[name], "tiles")


@pytest.mark.parametrize("size", [(32, 16), (16, 32), (64, 16)])
@pytest.mark.parametrize("name", ["both sides' vectors", "everything"])
def test_tiles_need_not_be_square(
    name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from anyformer.ops.kernels import launch

    usual = launch.Work.size
    other = lambda work, kernel: usual(work, kernel) if kernel == "tables" else made
    made = launch.Size(*size, 4, 1)
    monkeypatch.setattr(launch.Work, "size", other)
    found = gaps(CASES[name], "tiles")
    assert max(found.values()) < 1e-5, found


def drawn(seed: int) -> Case:
    """A slope with and without tables beside it, and everything else that a plan can have."""
    draw = random.Random(seed)
    low = draw.choice([1, 7, 20])
    return Case(
        heads=draw.choice([(2, 2), (2, 1)]),
        queries=draw.choice([1, 17, 40]),
        start=draw.choice([0, 0, 15, 33]),
        after=draw.choice([0, 19]),
        lead=draw.choice([0, 0, 5]),
        reach=(-low, draw.choice([0, low])),
        terms="slope" + draw.choice(["", "", " bias", " query", " key", " bias query key"]),
        shared=draw.random() < 0.5,
        causal=draw.random() < 0.5,
        window=draw.choice([0, 0, 9, 30]),
        pads=draw.choice(["", "", "left", "right"]),
    )


@pytest.mark.parametrize("seed", range(12))
def test_slopes_beside_all_else(seed: int) -> None:
    found = gaps(drawn(seed), "tiles")
    assert max(found.values()) < 1e-5, (drawn(seed), found)


@pytest.mark.parametrize("causal", [True, False])
def test_a_fixed_slope_needs_no_sums_and_no_tables(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anyformer.ops.kernels import launch_tables

    monkeypatch.setattr(launch_tables, "tables_kernel", None)
    case = Case((2, 1), terms="slope", causal=causal, queries=37, after=5)
    given = case.tensors()
    fixed = given.pop("slope")

    def run(q, k, v, plan: Plan) -> torch.Tensor:
        slope = fixed.to(q.dtype)
        return attend(q, k, v, replace(plan, relative=Relative(0, 0, slope=slope)), name)

    name = "tiles"
    ours = case.results(run, given, torch.float32)
    name = "eager"
    for key, wanted in case.results(run, given, torch.float64).items():
        torch.testing.assert_close(ours[key].double(), wanted, rtol=1e-5, atol=1e-5)


SLOPES = [[7.0, 0.4], [40.0, -0.05], [0.0, 3.0]]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("slopes", SLOPES)
def test_keys_that_are_too_faint_are_left_out(slopes: list[float], causal: bool) -> None:
    case = Case((2, 1), terms="slope", causal=causal, queries=45, after=12, start=7, lead=3)
    given = {**case.tensors(), "slope": torch.tensor(slopes, device=WHERE)}
    found = gaps(case, "tiles", given)
    assert max(found.values()) < 1e-5, found


def faint(**change: object) -> tuple[list[bool], list[bool]]:
    """Of which queries at the start and at the end the values of the first key are left out."""
    long = 600 if WHERE == "cuda" else 64
    case = replace(Case(terms="slope", queries=long, causal=True), **change)
    given = case.tensors()
    given["v"][:, :, case.lead] = float("nan")
    given["slope"] = torch.full_like(given["slope"], 40.0)
    out = attend(given["q"], given["k"], given["v"], case.plan(given), "tiles")
    left = out[0, 0].isfinite().all(-1).tolist()
    return left[:3], left[-3:]


def test_what_is_left_out_is_not_read() -> None:
    assert faint() == ([False] * 3, [True] * 3)
    assert faint(lead=2) == ([False] * 3, [True] * 3)


@pytest.mark.parametrize("change", [{"terms": "slope bias"}, {"pads": "right"}, {"start": 70}])
def test_all_keys_count_where_a_query_s_own_may_be_hidden_or_tables_add_to_it(
    change: dict[str, object],
) -> None:
    if "start" in change:  # queries behind the last key
        change = {"start": 0, "after": -3}
    assert faint(**change)[1] == [False] * 3


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # the interpreter's
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_is_not_left_out(bad: float) -> None:
    case = Case(terms="slope", queries=64, causal=True)
    given = {**case.tensors(), "slope": torch.full((1,), 40.0, device=WHERE)}
    given["k"][:, :, 0, 0], given["q"][..., 0] = bad, 1.0
    out = attend(given["q"], given["k"], given["v"], case.plan(given), "tiles")
    assert not out[0, 0, -1].isfinite().all()


@pytest.mark.parametrize("name", ["T5", "both sides' vectors", "ALiBi", "slope"])
def test_equals_eager_in_bfloat16(name: str) -> None:
    found = gaps(replace(CASES[name], dtype=torch.bfloat16), "tiles")
    assert max(found.values()) < 1e-2, found


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(60))
def test_random_shapes_on_a_gpu(seed: int) -> None:
    draw, low = random.Random(seed), random.Random(seed).choice([1, 7, 40, 128, 300])
    size = draw.choice([8, 16, 40, 64, 80, 96, 128])
    case = Case(
        heads=draw.choice([(4, 4), (4, 2), (4, 1)]),
        queries=draw.randint(2, 400),
        start=draw.choice([0, 0, 33]),
        after=draw.choice([0, 50]),
        lead=draw.choice([0, 0, 5, 70]),
        size=(size, draw.choice([size, max(8, size // 2)])),
        reach=(-low, draw.choice([0, low])),
        terms=draw.choice(
            ["bias", "query", "key", "bias query", "query key", "bias query key", "", "slope"]
        ),
        shared=draw.random() < 0.5,
        causal=draw.random() < 0.5,
        window=draw.choice([0, 0, 30, 150]),
        pads=draw.choice(["", "", "left", "right"]),
        dtype=draw.choice([torch.float32, torch.bfloat16, torch.float16]),
    )
    assert_as_exact_as_can_be(case, "tiles")


def test_rows_without_a_key_give_zeros_and_no_gradient() -> None:
    q, k, v = (torch.randn(2, 1, 18, 8, device=WHERE, requires_grad=True) for _ in "qkv")
    keep = torch.ones(2, 18, dtype=torch.bool, device=WHERE)
    keep[1] = False
    out = attend(q, k, v, Plan(0.3, Padding(keep)), "tiles")
    assert (out[1] == 0).all()
    assert (out[0] != 0).any()
    out.sum().backward()
    for x in (q, k, v):
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert (x.grad[1] == 0).all()


def test_twice_the_same_gradients_bit_for_bit() -> None:
    case = replace(CASES["Shaw"], terms="bias query key")
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "tiles")
    one, two = (case.results(run, given, torch.float32) for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_a_compiled_graph_has_no_break() -> None:
    case = Case(terms="bias query slope", causal=True, window=9, lead=2)
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "tiles").sin()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    one, two = (case.results(f, given, torch.float32) for f in (run, compiled))
    for name in one:
        torch.testing.assert_close(one[name], two[name])


def test_says_what_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (torch.randn(2, 2, 16, 8, device=WHERE) for _ in "qkv")
    ids = torch.zeros(2, 16, dtype=torch.long)
    says = lambda plan, *x: refusal("tiles", *(x or (q, k, v)), plan)
    assert says(Plan(1.0, Causal() & Window(3))) is None
    assert says(Plan(1.0, Documents(ids))) == "has no mask Documents"
    assert "float32" in str(says(Plan(1.0), q.double(), k.double(), v.double()))
    assert "one type" in str(says(Plan(1.0), q, k, v.half()))
    assert "256" in str(says(Plan(1.0), *(torch.randn(1, 1, 4, 264, device=WHERE) for _ in "qkv")))
    assert "host" in str(says(Plan(1.0, start=torch.zeros(1))))
    with pytest.raises(BackendError, match="can't run the plan's dropout"):
        attend(q, k, v, Plan(1.0, dropout=0.5), "tiles")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert says(Plan(1.0), q.cpu(), k.cpu(), v.cpu()) == "runs on a GPU, or with TRITON_INTERPRET=1"
    monkeypatch.setattr(module, "INSTALLED", False)
    assert says(Plan(1.0)) == "needs Triton, which isn't installed"


@pytest.mark.gpu
def test_a_gpu_has_it_for_tables_that_learn() -> None:
    q, k, v = (torch.randn(2, 4, 256, 64, device="cuda", dtype=torch.bfloat16) for _ in "qkv")
    table = torch.randn(4, 129, device="cuda", requires_grad=True)
    assert refusal("tiles", q, k, v, Plan(0.1, Causal(), Relative(-128, 0, table))) is None
    assert choose(q, k, v, Plan(0.1, Causal(), Relative(-128, 0, table))) != "tiles"  # not yet


@pytest.mark.gpu
def test_memory_on_a_gpu_is_linear_in_the_length() -> None:
    def peak(length: int) -> int:
        q, k, v = (
            torch.randn(1, 4, length, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in "qkv"
        )
        rows = torch.randn(4, 65, 64, device="cuda", requires_grad=True)
        torch.cuda.reset_peak_memory_stats()
        plan = Plan(0.1, None, Relative(-32, 32, query=rows, key=rows))
        attend(q, k, v, plan, "tiles").sum().backward()
        return torch.cuda.max_memory_allocated()

    peak(1024)
    assert peak(8192) < 2.3 * peak(4096)
