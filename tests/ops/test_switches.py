"""The benchmark of switches: what it names, what it leaves out, and rows as they are measured."""

import os
import time

import pytest
import torch

from benchmarks import contestants as module
from benchmarks import switches, tune
from benchmarks.ahead import ahead
from benchmarks.contestants import Contestant, Place, contestants
from benchmarks.runner import Settings, Table


def a_place(device: str = "cpu", dtype: torch.dtype = torch.float32) -> Place:
    return Place(device, dtype, heads=2, length=40, rows=1)


def test_what_takes_too_long_is_named_and_the_rest_is_done() -> None:
    began = time.monotonic()
    assert ahead(time.sleep, [0.0, 100.0, 0.1, 100.0], 1.0, 2) == {
        1: "not done within 1 s",
        3: "not done within 1 s",
    }
    assert time.monotonic() - began < 60


def test_a_process_that_dies_is_told_and_an_error_of_the_work_is_not() -> None:
    assert ahead(os._exit, [3, 0], 30.0, 1) == {0: "its process died", 1: "its process died"}
    assert ahead(int, ["no number", "1"], 30.0, 1) == {}
    assert ahead(int, [], 30.0) == {}


@pytest.mark.parametrize(
    ("only", "there", "gone"),
    [
        ((), "T5 bias written out", "nothing"),
        (("ours",), "Shaw", "T5 bias written out"),
        (("peers",), "T5 bias written out", "T5 bias"),
        (("written out",), "T5 bias written out", "top-k"),
        (("top-k", "Shaw"), "top-k", "entmax"),
    ],
)
def test_only_what_is_named_is_measured(only: tuple[str, ...], there: str, gone: str) -> None:
    names = [one.name for one in contestants(a_place(), only)]
    assert names[0] == "plain, flash"
    assert there in names
    assert gone not in names


def test_kernels_are_named_by_backend_and_together() -> None:
    one = Contestant("T5 bias, tiles", "ours", "T5 bias", "tiles")
    asked = [["tiles"], ["kernels"], ["ours"], ["T5 bias"], ["T5 bias, tiles"], []]
    assert all(one.asked(only) for only in asked)
    assert not any(one.asked([name]) for name in ("peers", "sparse", "Shaw"))
    assert not Contestant("T5 bias", "ours", "T5 bias", "chunked").asked(["kernels"])


def test_a_name_of_nothing_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"nonsense isn't one of .*Shaw.*top-k"):
        contestants(a_place(), ("Shaw", "nonsense"))


def test_rows_are_printed_as_they_come_and_failures_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    def broken(p: Place) -> None:
        shown = capsys.readouterr().out  # the row before is already there
        assert "| 40 | Shaw | " in shown
        raise ImportError("no such library")

    monkeypatch.setattr(module, "peers", lambda device: {"broken": ("peers", broken)})
    monkeypatch.setattr(module, "NAMED", ())  # interpreted kernels take long, and add nothing here
    settings = Settings(2, out=str(tmp_path), only=("Shaw", "broken"))
    table = Table("Switches", switches.HEAD)
    switches.measured(a_place(), settings, table, "rows")
    assert "40 broken: left out, ImportError: no such library" in capsys.readouterr().out
    assert [row[1] for row in table.rows][:2] == ["plain, flash", "Shaw"]
    assert "Shaw" in (tmp_path / "rows.md").read_text()
    assert table.rows[0][4:6] == ["1.00", "1.00"]


def test_slow_steps_on_a_gpu_are_repeated_less(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, took = [0.0], [0.0]
    monkeypatch.setattr(switches.time, "perf_counter", lambda: clock[0])

    def step(times: int) -> None:
        clock[0] += times * took[0]

    def paced(device: str, seconds: float) -> tuple[int, int]:
        took[0] = seconds
        return switches.pace(a_place(device=device), step, 5)

    assert paced("cuda", 0.001) == (10, 5)
    assert paced("cuda", 0.04) == (2, 5)
    assert paced("cuda", 3.0) == (1, 3)
    assert paced("cuda", 60.0) == (1, 2)
    assert paced("cpu", 60.0) == (1, 5)


def test_what_was_not_compiled_in_time_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [
        Contestant("plain, flash", "plain"),
        Contestant("Shaw", "ours", "Shaw", "chunked"),
        Contestant("Shaw, tiles", "ours", "Shaw", "tiles"),
        Contestant("FlexAttention, bias by distance", "FlexAttention"),
    ]
    seen = []

    def late(work: object, pieces: list, limit: float) -> dict[int, str]:
        seen.extend(one.name for _, one in pieces)
        return {1: "not done within 7 s"}

    monkeypatch.setattr(switches, "ahead", late)
    assert switches.compiled(a_place(), wanted, 7.0) == wanted[:3]
    assert seen == ["Shaw, tiles", "FlexAttention, bias by distance"]
    assert (
        "FlexAttention, bias by distance: left out, compiling: not done" in capsys.readouterr().out
    )


def test_tuning_tells_what_does_not_run() -> None:
    one = tune.Try("T5 bias", "forward", (16, 16, 4, 1))
    ms, why = tune.spent(one, a_place(dtype=torch.float64), 1)
    assert ms == float("inf")
    assert "tiles" in why


def test_tuning_changes_the_tiles_of_shelves_and_puts_them_back() -> None:
    from anyformer.ops.kernels import launch_shelves

    before = {kernel: dict(sizes) for kernel, sizes in launch_shelves.SIZES.items()}
    tried = [one for one in tune.tries(("DeBERTa, shelves",)) if one.kernel]
    assert {one.kernel for one in tried} == launch_shelves.SIZES.keys()
    for one in tried:
        with tune.tiled(one):
            (size,) = launch_shelves.SIZES[one.kernel].values()
            assert tuple(size)[: len(one.size)] == one.size
    assert before == launch_shelves.SIZES
