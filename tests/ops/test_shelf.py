"""Vectors by distance that pass by shared memory: as exact as 16 bits are, whatever the tiles."""

from dataclasses import replace

import pytest
import torch

from tests.ops.test_tiles import CASES
from tests.ops.tile_cases import GPU, Case, buffers, gaps, small_tiles

pytest.importorskip("triton", reason="shelves: Triton isn't installed")
WIDE = Case((2, 2), 300, size=(64, 64), reach=(-511, 512), causal=True)
GPU_CASES = {
    "Transformer-XL": replace(WIDE, terms="bias query", reach=(-400, 0)),
    "Shaw": replace(WIDE, terms="query", reach=(-64, 64), causal=False, queries=517, heads=(2, 1)),
    "DeBERTa": replace(WIDE, terms="query key", queries=700),
    "all": replace(WIDE, terms="bias query key", reach=(-100, 90), causal=False, pads="left"),
    "wide heads": replace(WIDE, terms="query key", reach=(-100, 90), size=(128, 128)),
    "wider heads": replace(WIDE, terms="bias query key", size=(160, 160)),
    "narrow": replace(WIDE, terms="query key", reach=(-30, 30), size=(40, 24), width=32),
}
SHELVED = [
    "window",
    "Shaw",
    "both sides' vectors",
    "Transformer-XL",
    "narrower tables and values",
    "everything",
    "one row of a table",
    "slope and all tables",
    "rows on one side only",
]


@pytest.fixture
def shelves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shelves on a CPU as well, with tiles of 16 x 16."""
    from anyformer.ops.kernels import launch

    small_tiles(monkeypatch)
    if not GPU:
        monkeypatch.setattr(launch, "shelves", lambda q: True)


@pytest.mark.usefixtures("shelves")
@pytest.mark.parametrize("name", SHELVED)
def test_equals_eager_but_for_rounding(name: str) -> None:
    case = replace(CASES[name], dtype=torch.bfloat16) if GPU else CASES[name]
    found = gaps(case, "tiles")
    assert max(found.values()) < (1e-2 if GPU else 2e-3), found


@pytest.mark.usefixtures("shelves")
@pytest.mark.skipif(GPU, reason="shelves: a GPU has sizes of its own")
@pytest.mark.parametrize("size", [(16, 16), (64, 64), (64, 32), (32, 64)])
def test_equals_eager_with_tiles_of_a_gpu(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from anyformer.ops.kernels import launch

    some = {256: launch.Size(*size, 4, 1)}
    square = {256: launch.Size(max(size), max(size), 4, 1)}
    sizes = dict.fromkeys(launch.SHELVED, some) | {"tables": square}
    monkeypatch.setattr(launch, "SHELVED", sizes)
    case = Case((2, 1), 75, terms="bias query key", reach=(-60, 70), dtype=torch.float16)
    found = gaps(case, "tiles")
    assert max(found.values()) < 1e-2, found


@pytest.mark.usefixtures("shelves")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_as_exact_as_by_gathers(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anyformer.ops.kernels import launch

    case = replace(CASES["both sides' vectors"], dtype=dtype)
    given = {n: t.to(dtype) for n, t in case.tensors().items()}
    shelved = gaps(case, "tiles", given)
    monkeypatch.setattr(launch, "shelves", lambda q: False)
    gathered = gaps(case, "tiles", given)
    assert all(shelved[n] < max(1e-2, 1.5 * gathered[n]) for n in shelved), (shelved, gathered)


@pytest.mark.usefixtures("shelves")
@pytest.mark.parametrize("name", ["Shaw", "Transformer-XL"])
def test_gradients_may_go_through_buffers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    buffers(monkeypatch)
    found = gaps(replace(CASES[name], dtype=torch.float16), "tiles")
    assert max(found.values()) < 1e-2, found


@pytest.mark.usefixtures("shelves")
def test_a_large_score_stays_a_number() -> None:
    case = replace(CASES["Shaw"], dtype=torch.bfloat16)
    given = {n: t.to(case.dtype) for n, t in case.tensors().items()}
    given["query"] = given["query"] * 1e5  # products beyond the largest number of float16
    found = case.results(_by_tiles, given, case.dtype)
    assert all(t.isfinite().all() for t in found.values())


def _by_tiles(q, k, v, plan):
    from anyformer.ops.attend import attend

    return attend(q, k, v, plan, "tiles")


def test_a_shelf_is_for_four_warps() -> None:
    from anyformer.ops.kernels.launch import SHELVED

    assert {size.warps for sizes in SHELVED.values() for size in sizes.values()} == {4}


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
    launch_shelf.widen(None, 1, "forward", {}, "")
    assert asked == [(launch_shelf.DYNAMIC, launch_shelf.ASKED)]
    with pytest.raises(RuntimeError, match="answers 1 when asked for memory of 'forward'"):
        launch_shelf.checked(1, "forward")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", GPU_CASES)
def test_equals_eager_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    found = gaps(replace(GPU_CASES[name], dtype=dtype), "tiles")
    assert max(found.values()) < 1e-2, found
