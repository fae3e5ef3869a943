"""Sums of scores over layers in Triton equal eager in float64, with all gradients."""

import random
from dataclasses import replace
from functools import partial

import pytest
import torch

from anyformer.errors import BackendError
from anyformer.ops.attend import attend, refusal
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
    from anyformer.ops.kernels import launch_layered, launch_talking
    from anyformer.ops.kernels.launch import Size

    small = dict.fromkeys(launch_layered.TILES, Size(16, 16, 4, 1))
    monkeypatch.setattr(launch_layered, "TILES", small)
    monkeypatch.setattr(launch_layered, "CHANNELS", 16)
    monkeypatch.setattr(launch_talking, "ROOM", 1)


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
