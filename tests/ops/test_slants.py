"""Vectors by distance through buffers: which plans take them, in strips or at once, bit for bit."""

from dataclasses import replace

import pytest
import torch

from anyformer.ops.attend import attend
from anyformer.ops.capture import for_replays
from tests.ops.test_tiles import CASES
from tests.ops.tile_cases import GPU, Case, buffers, gaps, small_tiles

pytest.importorskip("triton", reason="slants: Triton isn't installed")
BOTH = Case((2, 1), 21, terms="bias query key", reach=(-15, 9), size=(16, 16))
PAST = Case((2, 2), 33, terms="bias query", reach=(-40, 0), causal=True, size=(16, 16))


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch)
    buffers(monkeypatch)


VECTORS = [
    "window",
    "Shaw",
    "Transformer-XL",
    "narrower tables and values",
]


@pytest.mark.parametrize("name", VECTORS)
def test_equals_eager(name: str) -> None:
    found = gaps(CASES[name], "tiles")
    assert max(found.values()) < 1e-5, found


def results(case: Case, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return case.results(lambda q, k, v, p: attend(q, k, v, p, "tiles"), given, case.dtype)


def launched(monkeypatch: pytest.MonkeyPatch, case: Case) -> int:
    """How many strips the forward and the backward pass have; 0: no buffers."""
    from anyformer.ops.kernels import launch_slants

    seen = []
    fill = launch_slants.Leans.fill
    monkeypatch.setattr(
        launch_slants.Leans, "fill", lambda self, strip: (seen.append(strip), fill(self, strip))[1]
    )
    results(case, case.tensors())
    return len(seen)


@pytest.mark.parametrize("case", [BOTH, PAST], ids=["both sides", "the past"])
def test_strips_are_as_exact_as_all_at_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch_room

    given = case.tensors()
    monkeypatch.setattr(launch_room, "ROOM", 1 << 30)
    whole = results(case, given)
    monkeypatch.setattr(launch_room, "ENOUGH", 1)  # a key head at a time
    strips = results(case, given)
    exact = ("out", "q", "k", "v")  # what isn't summed over strips
    assert all(torch.equal(whole[n], strips[n]) for n in exact)
    for name in set(whole) - set(exact):
        torch.testing.assert_close(whole[name], strips[name], atol=1e-4, rtol=1e-4)


def test_twice_the_same_bit_for_bit() -> None:
    given = BOTH.tensors()
    one, two = results(BOTH, given), results(BOTH, given)
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_as_exact_as_without_buffers(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anyformer.ops.kernels import launch_room

    case = replace(PAST, dtype=dtype, heads=(1, 1))
    given = {n: t.to(dtype) for n, t in case.tensors().items()}
    leaning = gaps(case, "tiles", given)
    monkeypatch.setattr(launch_room, "BUSY", 1 << 60)
    gathered = gaps(case, "tiles", given)
    assert all(leaning[n] < max(1e-2, 1.5 * gathered[n]) for n in leaning), (leaning, gathered)


@pytest.mark.skipif(GPU, reason="slants: a GPU has limits of its own")
def test_few_scores_take_buffers_in_a_graph_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch_room

    case = replace(PAST, heads=(1, 1), queries=20)
    assert launched(monkeypatch, case) > 0
    monkeypatch.setattr(launch_room, "BUSY", 1 << 60)
    assert launched(monkeypatch, case) == 0
    with for_replays():
        assert launched(monkeypatch, case) > 0


@pytest.mark.skipif(GPU, reason="slants: a GPU has limits of its own")
def test_a_short_reach_or_too_little_room_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch_room

    monkeypatch.setattr(launch_room, "SHARE", 2)
    assert launched(monkeypatch, replace(PAST, heads=(1, 1), queries=20, reach=(-5, 0))) == 0
    assert launched(monkeypatch, replace(PAST, heads=(1, 1), queries=20, reach=(-15, 0))) > 0
    monkeypatch.setattr(launch_room, "ROOM", 64)
    assert launched(monkeypatch, replace(PAST, heads=(1, 1), queries=20, reach=(-15, 0))) == 0
