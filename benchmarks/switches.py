"""What each switch of attention costs beside plain causal attention, forward and backward.

`python -m benchmarks switches --device cuda` at 1,024, 8,192 and 32,768 tokens in bfloat16 (at the
last without rows that write scores out), and
`python -m benchmarks band` on a CPU at 1,024 and 4,096 in float32. A ratio is a switch's time over
that of plain attention, the fastest of torch's kernels, in turns with it. On a GPU steps are CUDA
graphs, so that what the host takes to launch kernels counts for nobody, as in a captured training
step. Rows are printed as they are measured, and `--only` names those wanted: `--only kernels`
leaves out peers and plain PyTorch.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from anyformer.ops.capture import capture
from benchmarks.ahead import ahead
from benchmarks.contestants import (
    DENSE,
    FLEX,
    NAMED,
    PLAIN,
    Attention,
    Contestant,
    Place,
    X,
    attention,
    contestants,
)
from benchmarks.runner import Settings, Table, race

HEAD = ["length", "attention", "backend", "median ms", "of best", "of plain", "MiB", "MiB of plain"]
TOKENS = 32768  # of all rows on a GPU
REPEATS = 10  # steps of a round on a GPU, unless they are slow
ROUND = 0.1  # seconds that a round of slow steps takes, or one step
SQUARE = 16384  # tokens beyond which what writes scores out is left out: 12 heads are 13 GB there
WRITTEN = ("eager", "halved")  # backends that do
PATIENCE = 10.0  # seconds for the rounds of one row; two there are always
Step = Callable[[int], None]  # so many times


class Stepper:
    """Forward and backward, as often as asked; a GPU is waited for at the end."""

    def __init__(self, p: Place, run: Attention, lead: int = 0):
        self.device, self.run, self.given = p.device, run, p.inputs(lead)
        self.weight = torch.randn_like(self.given[0])
        self.work: Callable[[], None] = self.once

    def once(self) -> None:
        """One step, kernel by kernel."""
        self.run(*self.given).backward(self.weight)
        for x in self.given:
            x.grad = None

    def __call__(self, times: int) -> None:
        """So many steps."""
        for _ in range(times):
            self.work()
        if self.device == "cuda":
            torch.cuda.synchronize()

    def capture(self) -> str:
        """From now on steps are replays of a graph; why not, where that can't be."""
        stream: Any = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.once()
        torch.cuda.current_stream().wait_stream(stream)
        try:
            graph, _ = capture(self.once, stream)
        except Exception as error:  # of whatever library it is that waits for the device
            return (str(error).splitlines() or [type(error).__name__])[0][:80]
        self.work = graph.replay
        return ""


def made(p: Place, one: Contestant) -> Stepper:
    """A contestant's step, with numbers of its own."""
    torch.manual_seed(0)
    return Stepper(p, *attention(p, one))


def peak(p: Place, step: Step) -> float:
    """MiB that one step takes beside what was there."""
    if p.device != "cuda":
        return 0.0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(1)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def freed() -> None:
    """Give back what a contestant held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def pace(p: Place, step: Step, rounds: int) -> tuple[int, int]:
    """How many steps a round has and how many rounds there are, by the time of one on a GPU."""
    step(1)
    if p.device != "cuda":
        return 1, rounds
    start = time.perf_counter()
    step(1)
    spent = max(time.perf_counter() - start, 1e-6)
    repeats = max(1, min(REPEATS, int(ROUND / spent)))
    return repeats, max(2, min(rounds, int(PATIENCE / (repeats * spent))))


def compile_one(piece: tuple[Place, Contestant]) -> None:
    """Run a contestant once, so that what is compiled for it is kept on disk."""
    torch.set_num_threads(1)
    made(*piece)(1)
    freed()


def compiles(one: Contestant) -> bool:
    """Whether a contestant has kernels that are compiled."""
    return one.family in (FLEX, X) or one.backend in (*NAMED, "flex")


def compiled(p: Place, wanted: list[Contestant], limit: float) -> list[Contestant]:
    """Compile in other processes, each row with a limit; those that can be measured are left."""
    start, slow = time.perf_counter(), [one for one in wanted if compiles(one)]
    failed = ahead(compile_one, [(p, one) for one in slow], limit)
    for i, why in failed.items():
        print(f"{p.length} {slow[i].name}: left out, compiling: {why}", flush=True)
    spent = time.perf_counter() - start
    print(f"{p.length}: {len(slow)} rows compiled in {spent:.0f} s", flush=True)
    late = {slow[i] for i in failed}
    return [one for one in wanted if one not in late]


class Base:
    """Plain attention, which each contestant takes turns with."""

    def __init__(self, p: Place, wanted: list[Contestant], rounds: int):
        self.p = p
        steps = {one: _made_or_told(p, one) for one in wanted if one.family == PLAIN}
        there = {one: step for one, step in steps.items() if step is not None}
        memory = {one: peak(p, step) for one, step in there.items()}
        self.slow = {one: _graph(p, one, step) for one, step in there.items()}
        repeats = {one: pace(p, step, rounds)[0] for one, step in there.items()}
        runs = {one.name: partial(there[one], repeats[one]) for one in there}
        best = {name: min(t) for name, t in race(runs, 2).items()}
        self.one = min(there, key=lambda one: best[one.name] / repeats[one])
        self.step, self.repeats = there[self.one], repeats[self.one]
        self.memory = memory[self.one]

    def row(self, one: Contestant, rounds: int) -> tuple[list[str], dict[str, object]]:
        """A contestant's cells, and the seconds and MiB that they come from."""
        same = one == self.one
        step = self.step if same else made(self.p, one)
        if not same:
            step(1)
        memory = self.memory if same else peak(self.p, step)
        late = self.slow[one] if same else _graph(self.p, one, step)
        repeats, rounds = pace(self.p, step, rounds)
        runs = {"base": partial(self.step, self.repeats), "ours": partial(step, repeats)}
        times = race({"base": runs["base"]} if same else runs, rounds)
        base = [t / self.repeats for t in times["base"]]
        ours = base if same else [t / repeats for t in times["ours"]]
        gpu = self.p.device == "cuda"
        cells = [
            str(self.p.length),
            one.name,
            one.backend + ", launched" * late,
            f"{statistics.median(ours) * 1e3:.2f}",
            f"{min(ours) / min(base):.2f}",
            f"{statistics.median(a / b for a, b in zip(ours, base, strict=True)):.2f}",
            f"{memory:.0f}" if gpu else "-",
            f"{memory / self.memory:.2f}" if gpu else "-",
        ]
        return cells, {"times": ours, "base": base, "memory": memory, "repeats": repeats}


def _graph(p: Place, one: Contestant, step: Stepper) -> bool:
    """Capture a step on a GPU; whether its kernels are launched one by one all the same."""
    why = step.capture() if p.device == "cuda" else ""
    if why:
        print(f"{p.length} {one.name}: no graph, {why}", flush=True)
    return bool(why)


def _made_or_told(p: Place, one: Contestant) -> Stepper | None:
    """A contestant's step that has run; what failed, and why, is printed."""
    try:
        step = made(p, one)
        step(1)
    except Exception as error:  # too little memory, no such kernel here, another library's own
        _told(p, one, error)
        return None
    return step


def _told(p: Place, one: Contestant, error: Exception) -> None:
    why = (str(error).splitlines() or [""])[0][:120]
    print(f"{p.length} {one.name}: left out, {type(error).__name__}: {why}", flush=True)


def linear(p: Place, wanted: list[Contestant]) -> list[Contestant]:
    """Those whose memory is linear in the length, where all scores would be too many."""
    if p.length <= SQUARE:
        return wanted
    square = [one for one in wanted if one.family in (X, DENSE) or one.backend in WRITTEN]
    for one in square:
        print(f"{p.length} {one.name}: left out, it writes all scores out", flush=True)
    return [one for one in wanted if one not in square]


def measured(p: Place, settings: Settings, table: Table, name: str) -> None:
    """Add the rows of one length, each as soon as it is there."""
    wanted = linear(p, contestants(p, settings.only))
    freed()
    if p.device == "cuda":
        wanted = compiled(p, wanted, settings.limit)
    base = Base(p, wanted, settings.rounds)
    raw = table.raw.setdefault(str(p.length), {"plain": base.one.name})
    assert isinstance(raw, dict)
    for one in wanted:
        try:
            cells, raw[one.name] = base.row(one, settings.rounds)
        except Exception as error:  # as above
            _told(p, one, error)
        else:
            print("| " + " | ".join(cells) + " |", flush=True)
            table.rows.append(cells)
            table.keep(settings, name)
        freed()


def every(settings: Settings) -> None:
    """Each switch, on the device asked for."""
    torch.set_num_threads(settings.threads)
    gpu = settings.device == "cuda"
    table = Table(f"Switches, forward and backward, {settings.device}", HEAD)
    if gpu:
        table.notes.append(torch.cuda.get_device_name())
        table.notes.append("steps are replays of CUDA graphs, but for rows that say launched")
    name = "h200_switches" if gpu else "cpu_switches"
    print("| " + " | ".join(HEAD) + " |", flush=True)
    for length in settings.lengths or ((1024, 8192, 32768) if gpu else (1024,)):
        dtype = torch.bfloat16 if gpu else torch.float32
        rows = max(1, TOKENS // length) if gpu else 1
        place = Place(settings.device, dtype, 12 if gpu else 6, length, rows)
        measured(place, settings, table, name)
    table.show(settings, name)


def band(settings: Settings) -> None:
    """T5's bias on a CPU beside plain attention."""
    torch.set_num_threads(settings.threads)
    table = Table("T5 bias, forward and backward, CPU", HEAD)
    for length in (1024, 4096):
        place = Place("cpu", torch.float32, 6, length, 1)
        only = Settings(settings.rounds, out=settings.out, only=("T5 bias", "T5 bias written out"))
        measured(place, only, table, "cpu_band")
    table.show(settings, "cpu_band")
