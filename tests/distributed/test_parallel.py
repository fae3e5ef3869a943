"""A run is the same under one process and many, however the model lies over them."""

import shutil
from pathlib import Path

import pytest
import torch

from anyformer.errors import SpecError
from anyformer.train.settings import Adafactor, Muon, Spreading, check
from tests.distributed.cases import CASES, settings
from tests.distributed.conftest import KINDS
from tests.distributed.helping import assert_done, differences

FOUR = {
    **KINDS,
    "tensor": {"tensor": 4},
    "hsdp": {"kind": "hsdp", "replicas": 2},
    "fsdp and tensor": {"kind": "fsdp", "tensor": 2},
}
BRANCHES = ("gpt2", "bert", "t5", "vit", "transformer-xl", "albert")


def halved(run: Path, to: Path) -> str:
    """A run as it was when it stopped after two of four steps."""
    shutil.copytree(run, to)
    shutil.rmtree(to / "checkpoints" / "step-00000004")
    shutil.rmtree(to / "model")
    return str(to)


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_are_one_process(home, kind):
    logged, weight = differences(home / "one", home / kind)
    assert logged < 1e-5 and weight < 1e-6


def test_a_run_goes_on_under_other_ranks_and_in_another_way(home, tmp_path):
    jobs = [
        {"world": 2, "kind": "fsdp", "out": halved(home / "ddp", tmp_path / "fsdp")},
        {"world": 2, "tensor": 2, "out": halved(home / "fsdp", tmp_path / "tensor")},
        {"world": 1, "out": halved(home / "tensor", tmp_path / "one")},
    ]
    assert_done(tmp_path, [{"case": "gpt2", "resume": True, **job} for job in jobs])
    for job in jobs:
        logged, weight = differences(home / "one", Path(job["out"]))
        assert logged < 1e-6 and weight < 1e-6, job


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if c != "electra"])
def test_every_branch_under_two_and_four_ranks(tmp_path, case):
    ways = {f"2 {k}": {"world": 2, **v} for k, v in KINDS.items()}
    if case in BRANCHES:
        ways |= {f"4 {k}": {"world": 4, **v} for k, v in FOUR.items()}
    one = {"case": case, "world": 1, "out": str(tmp_path / "one")}
    assert_done(
        tmp_path, [one, *({"case": case, "out": str(tmp_path / k), **v} for k, v in ways.items())]
    )
    found = {k: differences(tmp_path / "one", tmp_path / k) for k in ways}
    print(f"\n| {case} |", " | ".join(f"{k} {a:.1e} {b:.1e}" for k, (a, b) in found.items()))
    for way, (logged, weight) in found.items():
        assert logged < 1e-5 and weight < 1e-5, (way, found)


@pytest.mark.slow
def test_what_draws_from_the_rank_is_the_same_in_each_way(tmp_path):
    ways = {"one": {"world": 1}, **{k: {"world": 2, **v} for k, v in KINDS.items()}}
    assert_done(
        tmp_path, [{"case": "electra", "out": str(tmp_path / k), **v} for k, v in ways.items()]
    )
    for a, b in (("one", "tensor"), ("ddp", "fsdp")):
        assert max(differences(tmp_path / a, tmp_path / b)) < 1e-5, (a, b)


@pytest.mark.slow
@pytest.mark.parametrize("way", FOUR)
def test_one_rank_to_four_and_back(tmp_path, way):
    job = {"case": "gpt2", "settings": {"saving.background": way != "ddp"}}
    spread = {"world": 4, **FOUR[way]}
    assert_done(tmp_path, [{**job, "world": 1, "out": str(tmp_path / "one")}])
    there = {
        "world": 4,
        "resume": True,
        **FOUR[way],
        "out": halved(tmp_path / "one", tmp_path / "a"),
    }
    assert_done(tmp_path, [{**job, **there}, {**job, **spread, "out": str(tmp_path / "four")}])
    back = {"world": 1, "resume": True, "out": halved(tmp_path / "four", tmp_path / "b")}
    two = {"world": 2, "resume": True, "out": halved(tmp_path / "four", tmp_path / "c")}
    assert_done(tmp_path, [{**job, **back}, {**job, **two}])
    for name in "abc":
        logged, weight = differences(tmp_path / "one", tmp_path / name)
        print(f"\n| {way} {name} | {logged:.1e} | {weight:.1e} |")
        assert logged < 1e-6 and weight < 1e-6


OTHERS = {
    "muon": {"optimiser": {"is": "Muon"}},
    "adafactor": {"optimiser": {"is": "Adafactor"}},
    "recompute": {"recompute": True},
    "frozen": {"frozen": ["embed.*"]},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_optimisers_and_recomputation(tmp_path, name):
    job = {"case": "gpt2", "settings": OTHERS[name]}
    ways = {f"2 {k}": {"world": 2, **v} for k, v in KINDS.items()}
    ways["4 fsdp and tensor"] = {"world": 4, **FOUR["fsdp and tensor"]}
    ways = ways if name != "adafactor" else {"2 ddp": ways["2 ddp"]}
    one = {**job, "world": 1, "out": str(tmp_path / "one")}
    assert_done(tmp_path, [one, *({**job, "out": str(tmp_path / k), **v} for k, v in ways.items())])
    found = {k: differences(tmp_path / "one", tmp_path / k) for k in ways}
    print(f"\n| {name} |", " | ".join(f"{k} {a:.1e} {b:.1e}" for k, (a, b) in found.items()))
    most = 2e-3 if name == "muon" else 1e-5  # its iterations are in bfloat16
    assert all(logged < most and weight < most for logged, weight in found.values())


@pytest.mark.parametrize(
    ("world", "spreading", "says"),
    [
        (3, Spreading(tensor=2), "doesn't divide 3 ranks"),
        (4, Spreading(kind="ddp", tensor=2), "take 'fsdp'"),
        (4, Spreading(kind="fsdp", replicas=2), "kind='hsdp'"),
        (4, Spreading(kind="hsdp"), "2 or more"),
        (2, Spreading(kind="hsdp", replicas=2), "kind='ddp'"),
        (3, Spreading(), "can't be shared by 3"),
    ],
)
def test_ranks_that_cant_be_laid_out(world, spreading, says):
    with pytest.raises(SpecError, match=says):
        check(settings(spreading=spreading, micro=None), world)


def test_what_doesnt_go_with_heads_that_ranks_share():
    for switch in ({"compile": True}, {"precision": "float16"}):
        with pytest.raises(SpecError, match=r"spreading\.tensor=2"):
            check(settings(spreading=Spreading(tensor=2), **switch), 2)
    for found in (Spreading(tensor=2), Spreading(kind="fsdp")):
        with pytest.raises(SpecError, match="whole weights"):
            check(settings(spreading=found, optimiser=Adafactor()), 2)


def test_one_process_takes_any_layout():
    wanted = settings(spreading=Spreading(kind="hsdp", tensor=2, replicas=4), optimiser=Muon())
    assert check(wanted, 1) is wanted
    assert torch.distributed.is_available()
