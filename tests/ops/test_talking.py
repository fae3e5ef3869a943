"""Talking heads in Triton equal eager in float64, with all gradients; on a CPU interpreted."""

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from anyformer.errors import BackendError
from anyformer.ops import weigh as W
from anyformer.ops.attend import attend, choose, refusal
from anyformer.ops.mask import Causal, Documents, Padding
from anyformer.ops.plan import Plan
from tests.ops.tile_cases import GPU, WHERE, Case, assert_as_exact_as_can_be, gaps

pytest.importorskip("triton", reason="talking: Triton isn't installed")


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles, blocks and chunks, and room for 16 queries in a strip: there are several."""
    if GPU:
        return
    from anyformer.ops.kernels import launch_strips, talk
    from anyformer.ops.kernels.launch import Size

    monkeypatch.setattr(talk, "TILES", dict.fromkeys(talk.TILES, Size(16, 16, 4, 1)))
    monkeypatch.setattr(talk, "LONG", {"sums": Size(32, 16, 4, 1)})
    monkeypatch.setattr(talk, "RUN", 32)
    monkeypatch.setattr(talk, "SHARE", 1)
    monkeypatch.setattr(talk, "CHUNK", 16)
    monkeypatch.setattr(talk, "CHUNKS", 3)
    monkeypatch.setattr(launch_strips, "FINE", launch_strips.Grain(16, 16))
    monkeypatch.setattr(launch_strips, "COARSE", launch_strips.Grain(32, 16))
    monkeypatch.setattr(launch_strips, "ROOM", 1)


plain = partial(Case, terms="", talks="mix remix", size=(8, 8))
CASES = {
    "both": plain((3, 3), 3, after=14, size=(8, 6)),
    "causal, strips": plain((2, 1), 18, causal=True),
    "before alone, window, persistent keys": plain(
        (2, 2), 4, 13, causal=True, window=6, lead=3, talks="mix"
    ),
    "after alone, padding, later": plain((2, 2), 2, start=15, pads="left", talks="remix"),
    "many heads that share keys": plain((20, 4), 3, after=14, causal=True, start=11),
    "window without persistent keys": plain((2, 2), 4, start=13, after=2, window=4),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    found = gaps(CASES[name], "talking")
    assert max(found.values()) < 1e-5, found


LONG = {
    "causal, strips": (plain((3, 3), 20, causal=True), 1),
    "causal": (plain((2, 2), 20, causal=True), 1 << 20),
    "window, persistent keys": (plain((2, 1), 9, 9, lead=5, window=12, causal=True), 1 << 20),
    "both sides, padding": (plain((2, 2), 3, after=37, pads="left", talks="mix"), 1 << 20),
    "later than its window": (plain((2, 2), 8, start=30, window=7, talks="remix"), 1),
}


@pytest.mark.parametrize("name", LONG)
def test_long_rows_in_chunks_equal_eager(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch_strips

    case, room = LONG[name]
    monkeypatch.setattr(launch_strips, "LONG", 1)
    monkeypatch.setattr(launch_strips, "ROOM", room)
    found = gaps(case, "talking")
    assert max(found.values()) < 1e-5, found


def test_a_strip_with_all_queries_writes_gradients_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch_strips, launch_talking

    monkeypatch.setattr(launch_strips, "ROOM", 1 << 20)
    monkeypatch.delattr(launch_talking.Gradients, "summing")
    found = gaps(plain((2, 1), 9, start=4, after=6, causal=True), "talking")
    assert max(found.values()) < 1e-5, found


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(40))
def test_random_shapes_on_a_gpu(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch_strips, talk

    draw = random.Random(seed)
    monkeypatch.setattr(launch_strips, "ROOM", draw.choice([1 << 14, 1 << 18, 1 << 25]))
    monkeypatch.setattr(launch_strips, "LONG", draw.choice([128, 4096]))
    monkeypatch.setattr(talk, "CHUNK", draw.choice([128, 256]))
    monkeypatch.setattr(talk, "SHARE", draw.choice([2, 8]))
    size = draw.choice([8, 16, 40, 64, 80, 128])
    case = Case(
        heads=draw.choice([(4, 4), (12, 2), (20, 20), (2, 1)]),
        queries=draw.randint(2, 400),
        start=draw.choice([0, 0, 33]),
        after=draw.choice([0, 50]),
        lead=draw.choice([0, 0, 5, 70]),
        size=(size, draw.choice([size, max(8, size // 2)])),
        terms="",
        causal=draw.random() < 0.5,
        window=draw.choice([0, 0, 150]),
        pads=draw.choice(["", "", "left", "right"]),
        talks=draw.choice(["mix remix", "mix", "remix"]),
        gain=0.3,
        dtype=draw.choice([torch.float32, torch.bfloat16]),
    )
    assert_as_exact_as_can_be(case, "talking")


def test_equals_eager_in_bfloat16() -> None:
    found = gaps(replace(CASES["both"], dtype=torch.bfloat16), "talking")
    near = 1e-2 if GPU else 2e-2  # the interpreter cuts bits off where a GPU rounds
    assert max(found.values()) < near, found


def test_rows_without_a_key_give_zeros_and_no_gradient() -> None:
    q, k, v = (torch.randn(2, 2, 3, 8, device=WHERE, requires_grad=True) for _ in "qkv")
    keep = torch.ones(2, 3, dtype=torch.bool, device=WHERE)
    keep[1] = False
    mix = torch.randn(2, 2, device=WHERE)
    out = attend(q, k, v, Plan(0.3, Padding(keep), mix=mix, remix=mix), "talking")
    assert (out[1] == 0).all()
    assert (out[0] != 0).any()
    out.sum().backward()
    for x in (q, k, v):
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert (x.grad[1] == 0).all()


def test_twice_the_same_gradients_bit_for_bit() -> None:
    case = CASES["after alone, padding, later"]
    given = case.tensors()
    one, two = (ran(case, given) for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


def ran(case: Case, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Output and gradients."""
    return case.results(lambda q, k, v, p: attend(q, k, v, p, "talking"), given, case.dtype)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> tuple[Case, pytest.MonkeyPatch]:
    """A case with long rows, in shares and chunks on a GPU too; and what sets its constants."""
    from anyformer.ops.kernels import launch_strips, talk

    monkeypatch.setattr(launch_strips, "LONG", 1)
    monkeypatch.setattr(launch_strips, "ROOM", 1 << 20)
    if not GPU:
        return plain((2, 1), 4, start=30, causal=True), monkeypatch
    monkeypatch.setattr(talk, "CHUNK", 128)
    monkeypatch.setattr(talk, "SHARE", 2)
    case = plain((12, 12), 900, causal=True, size=(64, 64), dtype=torch.bfloat16, gain=0.3)
    return case, monkeypatch


def test_sums_in_shares_equal_those_in_one(long: tuple[Case, pytest.MonkeyPatch]) -> None:
    from anyformer.ops.kernels import talk

    case, patch = long
    given, taken, shares = case.tensors(), [], talk.Talk.shares

    def spied(*args: Any) -> int:
        taken.append(shares(*args))
        return taken[-1]

    patch.setattr(talk.Talk, "shares", spied)
    found = []
    for slots in (1, 264):
        taken.clear()
        patch.setattr(talk, "SLOTS", slots)
        found.append(ran(case, given))
        assert (max(taken) > 1) == (slots > 1)
    near = 1e-2 if GPU else 1e-5
    for name, one in found[0].items():
        assert (one - found[1][name]).abs().max() <= near * one.abs().max(), name


def test_long_rows_twice_the_same_bit_for_bit(long: tuple[Case, pytest.MonkeyPatch]) -> None:
    given = long[0].tensors()
    one, two = (ran(long[0], given) for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_a_compiled_graph_has_no_break() -> None:
    case = plain((2, 2), 3, causal=True)
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "talking").sin()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    one, two = (case.results(f, given, torch.float32) for f in (run, compiled))
    for name in one:
        torch.testing.assert_close(one[name], two[name])


def test_says_what_it_cannot() -> None:
    q, k, v = (torch.randn(2, 2, 16, 8, device=WHERE) for _ in "qkv")
    mix, ids = torch.eye(2, device=WHERE), torch.zeros(2, 16, dtype=torch.long)
    says = lambda plan: refusal("talking", q, k, v, plan)
    assert says(Plan(1.0, Causal(), mix=mix)) is None
    assert choose(q, k, v, Plan(1.0, Causal(), mix=mix)) != "talking"  # not yet
    assert says(Plan(1.0)) == "runs plans with mix or remix alone"
    assert says(Plan(1.0, mix=mix, weigh=W.entmax15)) == "can't run the plan's weigh"
    assert says(Plan(1.0, Documents(ids), mix=mix)) == "has no mask Documents"
    many = torch.randn(1, 65, 4, 8, device=WHERE)
    assert "64 heads" in str(refusal("talking", many, many, many, Plan(1.0, mix=torch.eye(65))))
    with pytest.raises(BackendError, match="can't run the plan's dropout"):
        attend(q, k, v, Plan(1.0, dropout=0.5, mix=mix), "talking")


@pytest.mark.gpu
def test_memory_on_a_gpu_is_linear_in_the_length() -> None:
    def peak(length: int) -> int:
        q, k, v = (
            torch.randn(1, 12, length, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in "qkv"
        )
        mix = torch.eye(12, device="cuda", requires_grad=True)
        torch.cuda.reset_peak_memory_stats()
        attend(q, k, v, Plan(0.1, Causal(), mix=mix, remix=mix), "talking").sum().backward()
        return torch.cuda.max_memory_allocated()

    peak(1024)
    assert peak(16384) < 2.3 * peak(8192)
