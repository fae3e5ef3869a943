"""Every work of `python -m benchmarks` runs in a tiny form, or refuses in words."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from anyformer.model import heads
from anyformer.model.count import count
from anyformer.ops import attend
from benchmarks import (
    __main__,
    contestants,
    decode,
    entropy,
    families,
    imports,
    memory,
    switches,
    train_loop,
    train_step,
    twins,
)
from benchmarks.contestants import Contestant, Place

FEW = {"dim": 32, "depth": 1, "heads": 2, "length": 16}
ALONE = (imports.PACKAGE, imports.OURS)  # others load torch, without bytecode the first time


def _beside(count: int, context: object) -> ThreadPoolExecutor:
    """In place of processes, which would have the true sizes."""
    return ThreadPoolExecutor(count)


TINY: dict[str, list[tuple[Any, dict[str, Any]]]] = {  # modules, and what they have instead
    "train-step": [(train_step, {"DIM": 16, "DEPTH": 1, "HEADS": 2})],
    "t5-step": [(train_step, {"DIM": 16, "DEPTH": 1, "HEADS": 2})],
    "memory": [(memory, {"LENGTHS": (256, 512, 1024), "SWITCHES": {"plain": {}, memory.LEFT: {}}})],
    "import-time": [(imports, {"PROGRAMS": {ALONE: imports.PROGRAMS[ALONE]}})],
    "decode": [
        (decode, {"NEW": 4, "SMALL": replace(decode.SMALL, dim=32, depth=1, heads=2, vocab=50)})
    ],
    "entropy": [
        (entropy, {"VOCAB": 300, "SIZES": {"cpu": (FEW, 2)}, "ProcessPoolExecutor": _beside}),
        (heads, {"LARGE": heads.LARGE}),  # which it changes
    ],
    "families": [],
    "train-loop": [(train_loop, {"STEPS": 2, "ROWS": 2, "LENGTH": 16})],
    "switches": [],
    "numerics": [],
}
ONLY = {
    "families": ["gpt2", "bart", "vit"],
    "switches": ["written out"],  # tests/ops/test_switches.py has ours
    "numerics": ["eager"],
    "decode": ["float32-1"],
}
LONG = {"load", "predict", "prepare", "compiled", "lines", "band"}  # have tests or minutes
GPU = {"kernels": "a GPU", "parts": "a GPU", "rows": "a GPU", "tune": "TRITON_INTERPRET"}


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    threads = torch.get_num_threads()
    try:
        __main__.main()
    finally:
        torch.set_num_threads(threads)


SLOW = ("decode", "t5-step")


@pytest.mark.parametrize(
    "work", [pytest.param(work, marks=pytest.mark.slow) if work in SLOW else work for work in TINY]
)
def test_a_work_runs_when_tiny(
    work: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    for module, values in TINY[work]:
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    only = ["--only", *ONLY[work]] if work in ONLY else []
    only += ["--lengths", "64"] if work == "switches" else []
    run(monkeypatch, work, "--rounds", "2", "--threads", "1", *only, "--out", str(tmp_path))
    assert re.search(r"^\| .* \|$", capsys.readouterr().out, re.MULTILINE)
    assert len([*tmp_path.glob("*.md")]) == len([*tmp_path.glob("*.json")]) == 1


def test_no_work_is_forgotten() -> None:
    assert {*__main__.WORKS} == {*TINY, *LONG, *GPU}


@pytest.mark.parametrize("work", ["kernels", "rows"])
def test_what_needs_a_gpu_says_so(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="GPU"):
        run(monkeypatch, work)
    with pytest.raises(SystemExit, match="torch sees no GPU"):
        run(monkeypatch, work, "--device", "cuda")


def test_what_runs_on_a_cpu_alone_refuses_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(SystemExit, match=r"load can't; .*memory.* can"):
        run(monkeypatch, "memory", "load", "--device", "cuda")


def test_a_family_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="gpt3 isn't one of gpt2, bert"):
        run(monkeypatch, "families", "--only", "gpt3")


@pytest.mark.parametrize("family", twins.FAMILIES, ids=lambda family: family.name)
def test_twins_have_the_sizes_of_each_other(family: twins.Family) -> None:
    pytest.importorskip("transformers", reason="twins: transformers isn't installed")
    spec = family.ours(False)
    with torch.device("meta"):
        theirs = sum(p.numel() for p in family.theirs(spec).parameters())
    ours = count(spec, family.length or None).parameters
    assert abs(ours - theirs) < 2e-3 * theirs


def test_the_peer_of_gpt2_is_compiled_too_on_a_gpu() -> None:
    family = twins.FAMILIES[0]
    assert family.name == "gpt2"
    spec = family.ours(True)
    names = lambda device, asked: {
        *families.contestants(family, spec, {}, torch.device(device), asked)
    }
    both = {"transformers, eager", "transformers, compiled"}
    assert both <= names("cuda", False) and both <= names("cpu", True)
    assert both & names("cpu", False) == {"transformers, eager"}


def test_scores_written_out_are_left_out_where_long(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        Contestant("plain, flash", contestants.PLAIN),
        Contestant("Shaw, tiles", contestants.OURS, "Shaw", "tiles"),
        Contestant("Shaw", contestants.OURS, "Shaw", "eager"),
        Contestant("T5 bias written out", contestants.DENSE),
        Contestant("x-transformers, top-k", contestants.X),
        Contestant("FlexAttention, bias by distance", contestants.FLEX),
    ]
    place = lambda length: Place("cuda", torch.bfloat16, 12, length, 1)
    assert switches.linear(place(8192), rows) == rows and not capsys.readouterr().out
    assert [one.name for one in switches.linear(place(32768), rows)] == [
        "plain, flash", "Shaw, tiles", "FlexAttention, bias by distance"]  # fmt: skip
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 3 and all("writes all scores out" in line for line in told)
    assert {*switches.WRITTEN} <= {*attend.BACKENDS}
