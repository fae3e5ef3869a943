"""Deterministic mode: two runs, of training and of writing, are equal bit for bit."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from anyformer import build
from anyformer.generate import generate
from anyformer.ops.exact import exact
from anyformer.train import run as runs
from tests.train import tiny

PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def trained(folder, device: str) -> tuple[bytes, dict[str, torch.Tensor]]:
    """The log and the weights of a run, whatever random state it is started from."""
    settings = dataclasses.replace(
        tiny.settings(steps=8, batch=8), deterministic=True, device=device
    )
    runs.train(tiny.spec(), tiny.Numbers(), tiny.TinyCausal(), folder, settings)
    return (folder / "metrics.jsonl").read_bytes(), tiny.weights(folder)


@pytest.mark.parametrize("device", PLACES)
def test_two_runs_of_training_are_equal(tmp_path, device):
    first = trained(tmp_path / "first", device)
    torch.manual_seed(99)
    second = trained(tmp_path / "second", device)
    assert first[0] == second[0]
    assert first[1].keys() == second[1].keys()
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("drawn", [{}, {"do_sample": True, "top_k": 5}], ids=["likeliest", "drawn"])
def test_two_texts_are_equal(device, drawn):
    torch.manual_seed(0)
    model = build(tiny.spec()).to(device).eval()
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]], device=device)
    texts = []
    for _ in range(2):
        torch.manual_seed(7)
        with exact():
            texts.append(generate(model, ids, max_new_tokens=8, **drawn))
    assert torch.equal(*texts)


def test_outside_of_it_all_is_as_before():
    before = torch.backends.cudnn.benchmark, torch.backends.cuda.mem_efficient_sdp_enabled()
    with exact():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cuda.mem_efficient_sdp_enabled()
    with exact(False):
        assert not torch.are_deterministic_algorithms_enabled()
    now = torch.backends.cudnn.benchmark, torch.backends.cuda.mem_efficient_sdp_enabled()
    assert before == now and not torch.are_deterministic_algorithms_enabled()


def test_a_run_in_float16_says_before_it_starts_what_overflows(tmp_path, capsys):
    torch.manual_seed(0)
    model = build(tiny.spec())
    with torch.no_grad():
        model.get_parameter("stack.blocks.1.1.branch.up.weight").mul_(3e6)
    settings = dataclasses.replace(tiny.settings(steps=1, batch=4), precision="float16", guard=None)
    runs.train(model, tiny.Numbers(), tiny.TinyCausal(), tmp_path / "run", settings)
    said = capsys.readouterr().err
    assert "precision='float16': stack.blocks.1.1.branch.up (Linear)" in said
    assert "bfloat16" in said
