"""All gradients in one pass, in CUDA C++: on a GPU of Hopper's generation, or on the emulator."""

import os
from dataclasses import replace

import pytest
import torch

from anyformer.ops.attend import attend
from anyformer.ops.mask import Causal
from anyformer.ops.plan import Plan
from anyformer.ops.relative import Relative
from tests.ops.tile_cases import GPU, WHERE, Case, assert_as_exact_as_can_be

pytest.importorskip("triton", reason="onepass: Triton isn't installed")
EMULATED = os.environ.get("ANYFORMER_EMULATED") == "1"
here = pytest.mark.skipif(not (GPU or EMULATED), reason="onepass: needs a GPU or tools.ptx.plugin")
XL = Case((2, 2), 200, size=(64, 64), reach=(-400, 0), causal=True, terms="bias query")
CASES = {
    "one tile": replace(XL, queries=64),
    "one query": replace(XL, queries=1),
    "rows of no whole tile": replace(XL, queries=203),
    "keys before": replace(XL, queries=70, start=150),
    "one query, many keys": replace(XL, queries=1, start=300),
    "without a bias": replace(XL, terms="query"),
    "one table for all heads": replace(XL, terms="query", shared=True),
    "a bias, one table for all heads": replace(XL, shared=True),
    "keys of two heads": replace(XL, heads=(4, 2)),
    "a bias of more than eight blocks": replace(XL, heads=(1, 1), queries=530, reach=(-600, 0)),
    "a bias of eight blocks": replace(XL, heads=(1, 1), queries=420, reach=(-600, 0)),
    "keys that nobody sees": replace(XL, queries=100, after=90),
    "float16": replace(XL, dtype=torch.float16),
}
OTHERS = {
    "a short reach": replace(XL, reach=(-30, 0)),
    "both ways": replace(XL, reach=(-400, 400), causal=False),
    "padding": replace(XL, pads="right"),
    "a window": replace(XL, window=40),
    "narrow heads": replace(XL, size=(32, 32)),
    "both tables": replace(XL, terms="query key"),
}


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The kernels of ours that have run, and how many heads each had."""
    from anyformer.ops.kernels import native

    seen, start = [], native.start

    def told(one, name, grid, *rest):  # type: ignore[no-untyped-def]
        seen.append((name, grid[1]))
        return start(one, name, grid, *rest)

    monkeypatch.setattr(native, "start", told)
    return seen


def of_sixteen_bits(case: Case) -> Case:
    return replace(case, dtype=torch.bfloat16) if case.dtype == torch.float32 else case


@here
@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, passes: list[tuple[str, int]]) -> None:
    assert_as_exact_as_can_be(of_sixteen_bits(CASES[name]), "shelves")
    assert {name for name, _ in passes} == {"onepass", "settled"}, "other kernels did it"


@here
@pytest.mark.parametrize("name", CASES)
def test_the_output_too(
    name: str, passes: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from anyformer.ops.kernels import launch_onepass

    monkeypatch.setattr(launch_onepass, "ONWARD", True)
    assert_as_exact_as_can_be(of_sixteen_bits(CASES[name]), "shelves")
    assert {name for name, _ in passes} == {"onward", "onepass", "settled"}, "other kernels did it"


@here
def test_keys_take_turns(monkeypatch: pytest.MonkeyPatch, passes: list[tuple[str, int]]) -> None:
    from anyformer.ops.kernels import launch_onepass

    monkeypatch.setattr(launch_onepass, "ROOM", 3 * 4 * 2 * 64 * 64 * 4)  # of three of four heads
    assert_as_exact_as_can_be(replace(XL, dtype=torch.float16, heads=(4, 2)), "shelves")
    assert {heads for name, heads in passes if name == "onepass"} == {2, 6}, passes


@here
def test_sums_of_a_bias_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch_onepass

    monkeypatch.setattr(launch_onepass, "AT_ONCE", 1)
    assert_as_exact_as_can_be(replace(XL, dtype=torch.float16), "shelves")


@here
def test_heads_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch_onepass

    monkeypatch.setattr(launch_onepass, "SPREAD", 3)  # of which the last four have one left
    assert_as_exact_as_can_be(replace(XL, dtype=torch.float16, heads=(2, 2)), "shelves")


@here
@pytest.mark.parametrize("name", OTHERS)
def test_what_it_leaves_to_others(name: str, passes: list[tuple[str, int]]) -> None:
    assert_as_exact_as_can_be(replace(OTHERS[name], dtype=torch.float16), "shelves")
    assert not passes


@here
def test_rows_that_begin_anywhere_are_left_to_others(passes: list[tuple[str, int]]) -> None:
    case = replace(XL, dtype=torch.float16)
    given = {n: t.to(case.dtype) for n, t in case.tensors().items()}
    flat = torch.empty(given["q"].numel() + 1, dtype=case.dtype, device=WHERE)
    given["q"] = flat[1:].view_as(given["q"]).copy_(given["q"])
    found = case.results(lambda *a: attend(*a, "shelves"), given, case.dtype)
    assert all(x.isfinite().all() for x in found.values()) and not passes


@here
def test_no_rows_are_no_work(passes: list[tuple[str, int]]) -> None:
    q, k, v = (torch.empty(0, 2, 70, 64, device=WHERE).half().requires_grad_() for _ in range(3))
    table = torch.ones(2, 70, 64, device=WHERE, requires_grad=True)
    out = attend(q, k, v, Plan(0.125, Causal(), Relative(-69, 0, query=table)), "shelves")
    found = torch.autograd.grad(out.sum(), (q, table))
    assert found[0].shape == q.shape and not found[1].any() and not passes
