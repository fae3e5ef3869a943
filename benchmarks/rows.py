"""Which cuts of a map of one row are fastest on a GPU, and which tiles of a step's attention.

A graph holds many launches in a row, each on a weight of its own, more of them than the cache
holds: so weights come from memory, and what lies between two kernels counts, as in decoding.
`python -m benchmarks rows --device cuda` prints what belongs into launch_rows.CUTS and launch_step.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from benchmarks.runner import Settings, Table

MEMORY = 256 << 20  # bytes of the weights that a graph reads, five times the cache
REPLAYS, BESIDE = 5, 4  # times that are measured, and graphs in each
PROCESSES = 12  # that compile
TILES = ((1024, 1), (2048, 1), (2048, 2), (4096, 2), (4096, 4), (8192, 4))  # scores and warps


class Map(NamedTuple):
    """A map of a model, with what stands around it."""

    name: str
    ins: int
    outs: int
    norm: str = "none"
    gated: bool = False
    act: str = "identity"
    more: bool = False
    best: bool = False

    def bytes(self) -> int:
        """Those of its weights."""
        return 2 * self.ins * self.outs * (1 + self.gated)


MAPS = (
    Map("GPT-2 q, k, v", 768, 2304, "layer"),
    Map("GPT-2 out", 768, 768, more=True),
    Map("GPT-2 up", 768, 3072, "layer", act="gelu_tanh"),
    Map("GPT-2 down", 3072, 768, more=True),
    Map("GPT-2 head", 768, 50257, "layer", best=True),
    Map("Llama q, k, v", 2048, 3072, "root"),
    Map("Llama out", 2048, 2048, more=True),
    Map("Llama up", 2048, 8192, "root", True, "silu"),
    Map("Llama down", 8192, 2048, more=True),
    Map("Llama head", 2048, 128256, "root", best=True),
)


class Work(NamedTuple):
    """Launches, and how many they are."""

    run: Callable[[], None]
    many: int


STEPS = {"GPT-2": ((12, 12), 64, False), "Llama": ((32, 8), 64, True)}  # heads, size, rotary
LIVE, AT = 272, 144  # keys that there may be, and those that there are half-way


def kind_of(attention: str) -> str:
    """The constant of launch_step that is about an attention."""
    (heads, groups), _, _ = STEPS[attention]
    return "ALONE" if heads == groups else "TOGETHER"


class Trial(NamedTuple):
    """What is measured: a map in one cut, or an attention with one tile."""

    map: Map | None
    cut: Any  # launch_rows.Cut
    attention: str = ""
    scores: int = 0
    warps: int = 0
    early: bool = False

    def work(self, layers: int | None = None) -> Work:
        """Its launches, of so many layers."""
        return steps(self.attention, layers) if self.map is None else launches(self.map, layers)

    @contextmanager
    def set(self) -> Iterator[None]:
        """The constants that it is about."""
        from anyformer.ops.kernels import launch_rows, launch_step

        map = self.map
        with changed(launch_rows, EARLY=self.early):
            if map is None:
                kind = kind_of(self.attention)
                tile = getattr(launch_step, kind)._replace(scores=self.scores, warps=self.warps)
                with changed(launch_step, **{kind: tile}):
                    yield
            else:
                with changed(launch_rows, CUTS={(map.ins, map.outs, map.gated): self.cut}):
                    yield


def launches(map: Map, layers: int | None) -> Work:
    """A launch for each of some layers, or for as many as fill the memory that a graph reads."""
    from anyformer.ops.rows import Norm, Rows

    drawn = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16) * 0.02
    ins, outs = map.ins, map.outs
    shift = drawn(ins) if map.norm == "layer" else None
    norm = None if map.norm == "none" else Norm(map.norm, 1e-5, drawn(ins), shift)
    gate = lambda: (drawn(outs, ins), None) if map.gated else None
    count = layers or max(2, -(-MEMORY // map.bytes()))
    made = [Rows((drawn(outs, ins), None), norm, gate(), map.act) for _ in range(count)]
    x, more = drawn(1, ins), drawn(1, outs) if map.more else None
    tokens = torch.zeros(1, dtype=torch.long, device="cuda")
    broken = torch.zeros(1, dtype=torch.bool, device="cuda")

    def run() -> None:
        for rows in made:
            if map.best:
                rows.choose(x, tokens, broken)
            else:
                rows(x, more)

    return Work(run, count)


def steps(name: str, layers: int | None) -> Work:
    """The attentions of a step, one a layer."""
    from anyformer.ops.step import Slots, Step

    heads, size, turns = STEPS[name]
    count = layers or 16
    drawn = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    caches = [[drawn(1, heads[1], LIVE, size) for _ in "kv"] for _ in range(count)]
    how = Step(heads, (size, size), 0.125, like=caches[0][0])
    y = drawn(1, (heads[0] + 2 * heads[1]) * size)
    at = torch.tensor([AT], device="cuda")
    wave: Any = tuple(torch.rand(1, size // 2, device="cuda") for _ in "cs") if turns else None

    def run() -> None:
        for keys, values in caches:
            how(y, Slots(keys, values, at, LIVE), wave)

    return Work(run, count)


def micros(work: Work) -> float:
    """Microseconds of one launch of a work, as a graph, the best of some replays."""
    work.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work.run()
    best = float("inf")
    for _ in range(REPLAYS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(BESIDE):
            graph.replay()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best / (work.many * BESIDE) * 1e6


@contextmanager
def changed(module: Any, **values: Any) -> Iterator[None]:
    """Constants of a module changed for a while."""
    old = {name: vars(module)[name] for name in values}
    vars(module).update(values)
    try:
        yield
    finally:
        vars(module).update(old)


def compiled(trial: Trial) -> None:
    """Compile a trial's kernel, which Triton keeps on disk."""
    with torch.inference_mode(), trial.set():
        trial.work(1).run()


def trials(only: tuple[str, ...]) -> dict[str, list[Trial]]:
    """All that is measured, by name; the first of each is what is there now."""
    from anyformer.ops.kernels import launch_rows as launch
    from anyformer.ops.kernels import launch_step

    found: dict[str, list[Trial]] = {}
    for map in MAPS:
        here = launch.cut_of(map.ins, map.outs, map.gated, 1)
        fits = [c for c in launch.CANDIDATES if c.k < 2 * map.ins and c != here]
        found[map.name] = [Trial(map, cut) for cut in (here, *fits)]
    for name in STEPS:
        here = getattr(launch_step, kind_of(name))[:2]
        tiles = (here, *(t for t in TILES if t != here))
        found[f"{name} attention"] = [Trial(None, None, name, *tile) for tile in tiles]
    return {name: some for name, some in found.items() if not only or name in only}


def _measured(name: str, some: list[Trial], table: Table) -> None:
    """The rows of one name: as it is now, the best, and both with kernels that start early."""
    work, took = some[0].work(), {}
    for early in (False, True):
        for trial in some:
            trial = trial._replace(early=early)
            with trial.set():
                took[trial] = micros(work)
    late = [t for t in took if not t.early]
    for label, trial in (("now", late[0]), ("best", min(late, key=lambda t: took[t]))):
        soon = took[trial._replace(early=True)]
        size = trial.map.bytes() if trial.map is not None else 0
        speed = f"{size / took[trial] / 1e6:.2f}" if size else ""
        table.rows.append([name, label, said(trial), f"{took[trial]:.2f}", f"{soon:.2f}", speed])
    early = min((t for t in took if t.early), key=lambda t: took[t])
    table.rows.append([name, "best early", said(early), "", f"{took[early]:.2f}", ""])
    table.raw[name] = {f"{said(t)}{' early' * t.early}": micro for t, micro in took.items()}


def said(trial: Trial) -> str:
    """A trial as the constants are written."""
    map = trial.map
    if map is None:
        return f"{kind_of(trial.attention)}: scores {trial.scores}, warps {trial.warps}"
    return f"({map.ins}, {map.outs}, {map.gated}): {trial.cut}"


def rows(settings: Settings) -> None:
    """Measure the candidates on a GPU; other processes compile them before, all at once."""
    if settings.device != "cuda" or not torch.cuda.is_available():
        raise SystemExit("the cuts of rows are those of a GPU: pass --device cuda where one is")
    found = trials(settings.only)
    every = [t._replace(early=e) for some in found.values() for t in some for e in (False, True)]
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compiled, every))
    table = Table("Maps of one row", ["map", "", "constants", "µs", "µs, early", "TB/s"])
    with torch.inference_mode():
        for name, some in found.items():
            _measured(name, some, table)
            torch.cuda.empty_cache()
            print(*table.rows[-3:], sep="\n", flush=True)
    table.show(settings, "gpu_rows")
