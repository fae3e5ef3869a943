"""Vectors by distance that pass by shared memory: as exact as 16 bits are, whatever the tiles."""

import os
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from anyformer.errors import BackendError
from anyformer.ops.attend import attend, choose
from anyformer.ops.mask import Causal, Padding
from anyformer.ops.plan import Plan
from anyformer.ops.relative import Relative
from tests.ops.test_tiles import CASES
from tests.ops.tile_cases import GPU, WHERE, Case, assert_as_exact_as_can_be, gaps

pytest.importorskip("triton", reason="shelves: Triton isn't installed")
WIDE = Case((2, 2), 300, size=(64, 64), reach=(-511, 512), causal=True)
GPU_CASES = {
    "Transformer-XL": replace(WIDE, terms="bias query", reach=(-400, 0)),
    "Shaw": replace(WIDE, terms="query", reach=(-64, 64), causal=False, queries=517, heads=(2, 1)),
    "DeBERTa": replace(WIDE, terms="query key", queries=700),
    "all": replace(WIDE, terms="bias query key", reach=(-100, 90), causal=False, pads="left"),
    "long": replace(WIDE, terms="bias query key", queries=2049, reach=(-150, 0)),
    "window": Case(
        (4, 2),
        700,
        20,
        13,
        size=(64, 64),
        terms="bias query key",
        causal=True,
        window=170,
        pads="r",
        reach=(-90, 3),
    ),
    "keys": Case((2, 2), 300, size=(32, 64), terms="key", reach=(-20, 20)),
    "narrow": replace(WIDE, terms="query key", reach=(-30, 30), size=(40, 24), width=32),
    "small": replace(WIDE, terms="bias query key", reach=(-30, 0), size=(32, 32)),
    "small both ways": replace(
        WIDE, terms="query key", reach=(-30, 30), size=(20, 32), causal=False
    ),
}
SHELVED = {
    **{name: CASES[name] for name in CASES if re.search("Shaw|vectors|XL|narrower", name)},
    "window": CASES["window"],
    "all": Case((2, 1), 21, 5, 3, terms="bias query key", causal=True, window=17, pads="r"),
    "far on both sides": Case(terms="bias query key", reach=(-3, 4), queries=70),
    "far queries alone": Case(terms="query", reach=(-3, 4), queries=70, window=30),
    "few rows of a table": Case(reach=(-1, 1), terms="bias query"),
    "rows on one side only": Case(reach=(2, 6), terms="key", causal=True),
    "rows of the past alone": Case(reach=(-9, -3), terms="key", causal=True, start=3),
    "fewer queries than keys": Case(terms="query key", queries=5, start=40, causal=True),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 16 x 16 on a CPU."""
    if not GPU:
        tiles(16, monkeypatch)


def tiles(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch, launch_shelves

    for name in launch_shelves.SIZES:
        monkeypatch.setitem(launch_shelves.SIZES, name, {2: launch.Size(size, size, 4, 1)})


@pytest.mark.parametrize("name", SHELVED)
def test_equals_eager_but_for_rounding(name: str) -> None:
    assert_as_exact_as_can_be(replace(SHELVED[name], dtype=torch.float16), "shelves")


@pytest.mark.skipif(GPU, reason="shelves: a GPU has sizes of its own")
@pytest.mark.parametrize("size", [32, 64])
def test_equals_eager_with_tiles_of_a_gpu(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tiles(size, monkeypatch)
    case = Case((2, 1), 203, terms="bias query key", reach=(-60, 70), dtype=torch.float16)
    assert_as_exact_as_can_be(case, "shelves")


@pytest.mark.parametrize("seed", range(6))
def test_equals_eager_in_random_shapes(seed: int) -> None:
    draw = random.Random(seed)
    low, high = sorted((draw.randint(-40, 5), draw.randint(-5, 40)))
    case = Case(
        heads=draw.choice([(1, 1), (2, 1), (4, 2)]),
        queries=draw.randint(1, 70),
        start=draw.randint(0, 20),
        after=draw.randint(0, 20),
        size=(draw.randint(3, 32), draw.randint(3, 32)),
        reach=(low, high),
        terms=draw.choice(["query", "key", "bias query", "query key", "bias query key"]),
        shared=draw.random() < 0.5,
        causal=draw.random() < 0.5,
        window=draw.choice([0, 0, 9, 33]),
        pads=draw.choice(["", "", "left", "right"]),
        dtype=draw.choice([torch.bfloat16, torch.float16]),
    )
    torch.manual_seed(seed)
    assert_as_exact_as_can_be(case, "shelves")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_as_exact_as_by_gathers(dtype: torch.dtype) -> None:
    case = replace(CASES["both sides' vectors"], dtype=dtype)
    given = {n: t.to(dtype) for n, t in case.tensors().items()}
    shelved, gathered = gaps(case, "shelves", given), gaps(case, "tiles", given)
    assert all(shelved[n] < max(1e-2, 1.5 * gathered[n]) for n in shelved), (shelved, gathered)


def test_a_bias_of_many_digits_keeps_them() -> None:
    case = replace(CASES["Transformer-XL"], dtype=torch.bfloat16)
    given = {n: t.to(case.dtype) for n, t in case.tensors().items()}
    given["bias"] = torch.randint(100, 104, given["bias"].shape, device=WHERE).to(case.dtype)
    assert max(gaps(case, "shelves", given).values()) < 1e-2


def test_rows_without_a_key_give_zeros_and_no_gradient() -> None:
    q, k, v = (torch.randn(2, 2, 20, 8, device=WHERE).half().requires_grad_() for _ in range(3))
    keep = torch.ones(2, 20, dtype=torch.bool, device=WHERE)
    keep[0] = False
    terms = Relative(
        -3, 3, query=torch.randn(2, 7, 8, device=WHERE), key=torch.randn(2, 7, 8, device=WHERE)
    )
    out = attend(q, k, v, Plan(0.5, Padding(keep), terms), "shelves")
    found = torch.autograd.grad(out.sum(), (q, k, v))
    assert (out[0] == 0).all() and (out[1] != 0).any()
    assert all((g[0] == 0).all() and g.isfinite().all() and (g[1] != 0).any() for g in found)


def test_a_large_score_stays_a_number() -> None:
    case = replace(CASES["Shaw"], dtype=torch.bfloat16)
    given = {n: t.to(case.dtype) for n, t in case.tensors().items()}
    given["query"] = given["query"] * 1e5  # products beyond the largest number of float16
    found = case.results(lambda *a: attend(*a, "shelves"), given, case.dtype)
    assert all(t.isfinite().all() for t in found.values())


REFUSED = {
    "is for vectors by distance": ({"relative": Relative(-1, 1, torch.zeros(2, 3))}, 8),
    "has a bias beside vectors of queries alone": (
        {"relative": Relative(-1, 1, torch.zeros(2, 3), key=torch.zeros(2, 3, 8))},
        8,
    ),
    "neither slopes nor memory keys": ({"lead": 2}, 8),
    "heads of up to 64 channels": ({}, 80),
    "a scale above 0": ({"scale": -1.0}, 8),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_it_lacks_is_said(why: str) -> None:
    more, wide = REFUSED[why]
    q, k, v = (torch.randn(1, 2, 4, wide, device=WHERE, dtype=torch.float16) for _ in range(3))
    table = Relative(-1, 1, query=torch.randn(2, 3, wide, device=WHERE))
    plan = Plan(**{"scale": 0.5, "relative": table, **more})
    with pytest.raises(BackendError, match=why):
        choose(q, k, v, plan, "shelves")


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_a_compiled_graph_has_no_break() -> None:
    case = Case(terms="bias query key", causal=True, window=9, dtype=torch.float16)
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "shelves").sin()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    one, two = (case.results(f, given, torch.float16) for f in (run, compiled))
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-2, rtol=1e-2)


def test_it_is_for_sixteen_bits_and_any_order_of_sums() -> None:
    q, k, v = (torch.randn(1, 2, 4, 8, device=WHERE, dtype=torch.float16) for _ in range(3))
    plan = Plan(0.5, Causal(), Relative(-1, 1, query=torch.randn(2, 3, 8, device=WHERE)))
    assert choose(q, k, v, plan, "shelves") == "shelves"
    with pytest.raises(BackendError, match="16 bits"):
        choose(q.float(), k.float(), v.float(), plan, "shelves")
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(BackendError, match="deterministic"):
            choose(q, k, v, plan, "shelves")
    finally:
        torch.use_deterministic_algorithms(False)


LAYOUTS = """
import re, torch
from benchmarks.compiled import caught
from anyformer.ops import shelves, tiles
from anyformer.ops.plan import Plan
from anyformer.ops.mask import Causal, Padding
from anyformer.ops.relative import Relative
given = [torch.randn(1, 1, 128, 64, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
table = Relative(-127, 0, torch.randn(1, 128), torch.randn(1, 128, 64))
with caught() as found:
    shelves.shelves(*given, Plan(0.125, Causal(), table)).backward(torch.ones_like(given[0]))
    for kernel in found:
        for line in kernel.tiles.splitlines():
            if "elementwise_inline_asm" in line and ".shared." in line and "tensor" in line:
                kind = re.findall("#[a-z]+[0-9]*>", line.split("->")[1])[0][:-1]
                print(kernel.name, kind, re.search(re.escape(kind) + " = (.*)", kernel.tiles)[1])
"""


def test_a_warp_moves_the_rows_that_it_lays() -> None:
    """So that it waits for nobody in between: as a compiler for a GPU lays out what nobody runs."""
    env = {n: x for n, x in os.environ.items() if n != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join(["src", ".", env.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", LAYOUTS], capture_output=True, text=True, env=env, check=False
    )
    assert not done.returncode, done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("shelved")]
    within = [line for line in lines if "warpsPerCTA = [4, 1]" in line and "nvidia_mma" in line]
    assert {line.split()[0] for line in within} == {"shelved", "shelved_queries", "shelved_keys"}
    outside = [line for line in lines if line not in within]
    moved = "sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]"
    assert len(outside) == 2 and all(moved in line for line in outside), outside


COMPILED = """
import torch
from dataclasses import replace
from benchmarks.compiled import caught, disassembled, lost, unset
from anyformer.ops.attend import attend
from tests.ops.test_shelf import GPU_CASES
with caught() as found:
    for name in ("all", "window", "narrow", "small", "Transformer-XL", "keys"):
        case = replace(GPU_CASES[name], dtype=torch.float16)
        given = {n: t.to(case.dtype).requires_grad_() for n, t in case.tensors().items()}
        out = attend(given["q"], given["k"], given["v"], case.plan(given), "shelves")
        torch.autograd.grad(out.sum(), list(given.values()), allow_unused=True)
    for kernel in found:
        if kernel.name.startswith("shelved"):
            sass = disassembled(kernel.code)[1]
            print(kernel.name, lost(sass) + unset(sass))
"""


def test_kernels_compile_for_a_gpu_whatever_the_sizes() -> None:
    """Of tables on both sides, a window with padding, narrow heads, and keys that are all near.

    And what is read from registers was written, and stays there: no emulator of PTX can see that.
    """
    env = {n: x for n, x in os.environ.items() if n != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join(["src", ".", env.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, env=env, check=False
    )
    assert not done.returncode, done.stderr[-2000:]
    found = sorted(done.stdout.splitlines())
    assert found == [
        f"{name} []" for name in sorted(6 * ["shelved", "shelved_keys", "shelved_queries"])
    ]


def test_a_kernel_with_a_shelf_is_asked_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch_shelf

    asked = []

    class Driver:
        """Has a kernel with a shelf."""

        def cuFuncGetAttribute(self, number, attribute, _kernel):  # noqa: N802 - CUDA's name
            number._obj.value = {launch_shelf.STATIC: 18432, launch_shelf.DYNAMIC: 48 << 10}[
                attribute
            ]
            return 0

        def cuFuncSetAttribute(self, _kernel, attribute, value):  # noqa: N802 - CUDA's name
            asked.append((attribute, value))
            return 0

    monkeypatch.setattr(launch_shelf, "driver", Driver)
    launch_shelf.widen(None, 1, "another")
    assert not asked
    launch_shelf.widen(None, 1, "shelved_keys", {}, "")
    assert asked == [(launch_shelf.DYNAMIC, launch_shelf.ASKED)]
    with pytest.raises(RuntimeError, match="answers 1 when asked for memory of 'it'"):
        launch_shelf.checked(1, "it")


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["DeBERTa", "Transformer-XL"])
@pytest.mark.parametrize("moved", ["q", "k v", "query"])
def test_rows_may_begin_anywhere_on_a_gpu(name: str, moved: str) -> None:
    """Where loads aren't sixteen bytes wide, Triton asks for them in another order."""
    case = replace(GPU_CASES[name], dtype=torch.float16, queries=200)
    given = {n: t.to(case.dtype) for n, t in case.tensors().items()}
    for name in moved.split():
        wide = torch.randn(*given[name].shape[:-1], 66, device=WHERE, dtype=case.dtype)
        given[name] = wide[..., 1:65]
    assert max(gaps(case, "shelves", given).values()) < 1e-2


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", GPU_CASES)
def test_equals_eager_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    found = gaps(replace(GPU_CASES[name], dtype=dtype), "shelves")
    assert max(found.values()) < 1e-2, found
