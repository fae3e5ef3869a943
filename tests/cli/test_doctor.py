"""`anyformer doctor` and `show --plan`: what runs each attention here, and why."""

import re

import pytest
import torch

from anyformer import recipe
from anyformer import spec as S
from anyformer.cli.doctor import SWITCHES, compiler_of_kernels, decoder, fused_line, fused_lines
from anyformer.cli.main import main
from anyformer.laws.ways import SLOWER, ways
from anyformer.ops import attend as module
from anyformer.ops import fastest
from anyformer.ops.attend import attend, heard_by
from anyformer.ops.fastest import Found
from anyformer.ops.plan import Plan


def test_the_doctor_names_a_way_for_every_switch(capsys):
    assert main(["doctor", "--length", "24", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert torch.__version__ in said and "24 positions on cpu, float32" in said
    cells = (re.split(r"\s{2,}", line.strip()) for line in said.splitlines()[-17:])
    rows = {name: [way.split(", ") for way in found] for name, *found in cells}
    assert {*SWITCHES} <= {*rows}
    assert rows["plain"] == [["sdpa"]] * 3
    assert rows["residual attention"][0] == ["sdpa", "eager"]  # few layers below, and many
    assert all(len(rows[switch]) == 3 for switch in SWITCHES)
    ways = [name for switch in SWITCHES for found in rows[switch] for name in found]
    assert all(name in module.BACKENDS for name in ways)


def test_the_doctor_tells_the_times_of_fused_kernels(monkeypatch):
    found = {True: Found("flash", {"flash": 2.0, "cudnn": 1.0}), False: Found(why="no room")}
    monkeypatch.setattr(fastest, "measured", lambda shape: found[shape.learns])
    lines = fused_lines(256, {"device": "cuda", "dtype": torch.bfloat16})
    assert lines[1] == "  training: cudnn (cudnn 1.000 ms, flash 2.000 ms)"
    assert lines[2] == "  reading: torch's own (not asked): no room"
    assert "deterministic mode" in lines[-1] and "(1, 4, 256, 64)" in lines[0]
    same = Found("cudnn", {"flash": 2.0, "cudnn": 1.0})
    assert fused_line(same) == "cudnn, torch's own (cudnn 1.000 ms, flash 2.000 ms)"


def test_the_doctor_says_why(capsys):
    assert main(["doctor", "--length", "24", "--device", "cpu", "--why"]) == 0
    said = capsys.readouterr().out
    assert "soft cap, train: " in said and "can't run the plan's mods" in said


def test_what_is_not_there_is_refused(capsys):
    assert main(["doctor", "--device", "tpu"]) == 2
    assert "this machine has cpu" in capsys.readouterr().err
    assert main(["doctor", "--length", "1"]) == 2
    assert "give 2 or more" in capsys.readouterr().err


def test_a_place_without_a_plan_is_refused(capsys):
    assert main(["show", "gpt2", "--device", "cpu"]) == 2
    assert "add it, or leave them out" in capsys.readouterr().err


def test_the_plan_of_a_model(capsys):
    assert (
        main(["show", "t5", "dim=32", "heads=2", "--plan", "--length", "16", "--device", "cpu"])
        == 0
    )
    said = capsys.readouterr().out
    assert "on cpu, float32" in said and "mask, relative" in said
    assert "train: " in said and "since sdpa can't run the plan's relative" in said


def test_what_is_told_is_what_runs():
    spec = decoder({"relative": "(Buckets(bidirectional=False),)"}, 1024)
    told = {(way.work, way.backend) for way in ways(spec, 1024)}
    assert ("train", "band") in told and ("one more token", "eager") in told
    found = ways(S.override(decoder({}, 16), "stack.block.0.branch.backend", "eager"), 16)
    assert {way.backend for way in found} == {"eager"}
    reasons = dict(found[0].reasons)
    assert reasons["sdpa"] == SLOWER


def test_the_plan_of_carried_scores_is_that_of_every_layer():
    spec = S.override(decoder({"carry": "True"}, 1024), "stack.depth", 7)
    told = [way for way in ways(spec, 1024) if way.work == "train"]
    assert [(way.backend, way.asks) for way in told] == [
        ("sdpa", "mask"), ("sdpa", "carry, mask"), ("chunked", "carry, mask")]  # fmt: skip
    assert dict(told[-1].reasons)["sdpa"] == "needs values about as wide as q and k"
    named = ways(S.override(spec, "stack.block.0.branch.backend", "chunked"), 1024)
    assert {way.backend for way in named if way.work == "train"} == {"chunked"}


def test_every_kind_of_model_has_a_plan():
    small = {"dim": 16, "heads": 2, "depth": 3}
    for name in ("gpt2", "bert", "t5", "vit", "transformer-xl", "gpt-neo"):
        found = ways(recipe(name, **small), None if name == "vit" else 12)
        assert {"train", "read"} <= {way.work for way in found}, name


def test_attentions_that_are_heard_are_not_computed(monkeypatch):
    q = torch.randn(1, 2, 3, 4)
    heard = []
    for name, backend in module.BACKENDS.items():
        run = lambda *a, name=name: (_ for _ in ()).throw(AssertionError(name))
        monkeypatch.setitem(module.BACKENDS, name, module.Backend(run, backend.can, backend.lacks))
    with heard_by(lambda name, *work: heard.append(name)):
        assert not attend(q, q, q, Plan(1.0)).any()
    assert heard == ["sdpa"]


def test_nvrtc_that_is_missing_is_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import native

    monkeypatch.setattr(native, "compiler", lambda: None)
    assert compiler_of_kernels() == f"not found: {native.remedy()}"
    assert re.fullmatch("pip install nvidia-cuda-nvrtc(-cu12)?", native.remedy())
