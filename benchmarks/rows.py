"""Which cuts of a map of few rows are fastest on a GPU, and which tiles of a step's attention.

A graph holds many launches in a row, each on a weight of its own, more of them than the cache
holds: so weights come from memory, and what lies between two kernels counts, as in decoding.
`python -m benchmarks rows --device cuda` prints what belongs into launch_rows.CUTS and BLOCKS and
into launch_step; for 64 rows torch's own product, alone, stands beside.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from benchmarks.runner import Settings, Table

MEMORY = 256 << 20  # bytes of the weights that a graph reads, five times the cache
REPLAYS, BESIDE = 5, 4  # times that are measured, and graphs in each
PROCESSES = 12  # that compile
LIVE, AT = 272, 144  # keys that there may be, and those that there are half-way
TENS = 64  # rows of the second half of the table


class Work(NamedTuple):
    """Launches, and how many they are."""

    run: Callable[[], None]
    many: int


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
    rows: int = 1

    def bytes(self) -> int:
        """Those of its weights."""
        return 2 * self.ins * self.outs * (1 + self.gated)

    def constant(self) -> str:
        """The table of launch_rows that has its cut."""
        return "CUTS" if self.rows == 1 else "BLOCKS"

    def options(self) -> list[Any]:
        """Cuts to try, what is there now first."""
        from anyformer.ops.kernels import launch_rows as launch

        if self.rows == 1:
            here = launch.cut_of(self.ins, self.outs, self.gated, 1)
            others = [c for c in launch.CANDIDATES if c.k < 2 * self.ins]
        else:
            here = launch.block_of(self.ins, self.outs, self.gated)
            others = [b for b in launch.BLOCK_CANDIDATES if self.suits(b)]
        return [here, *(c for c in others if c != here)]

    def suits(self, block: Any) -> bool:
        """Whether a block leaves enough programs, and each of them enough inputs."""
        parts = -(-self.outs // block.n) * block.shares
        alone = block.shares == 1 or not (self.best or self.gated)
        return alone and 12 <= parts < 1600 and block.k * block.shares <= self.ins

    def set(self, option: Any) -> dict[str, Any]:
        """Constants of launch_rows with a cut."""
        return {self.constant(): {(self.ins, self.outs, self.gated): option}}

    def work(self, layers: int | None) -> Work:
        """A launch for each of some layers, or for as many as fill what a graph reads."""
        from anyformer.ops.rows import Norm, Rows

        ins, outs, rows = self.ins, self.outs, self.rows
        shift = drawn(ins) if self.norm == "layer" else None
        norm = None if self.norm == "none" else Norm(self.norm, 1e-5, drawn(ins), shift)
        gate = lambda: (drawn(outs, ins), None) if self.gated else None
        count = layers or max(2, -(-MEMORY // self.bytes()))
        made = [Rows((drawn(outs, ins), None), norm, gate(), self.act) for _ in range(count)]
        x, more = drawn(rows, ins), drawn(rows, outs) if self.more else None
        tokens = torch.zeros(rows, dtype=torch.long, device="cuda")
        broken = torch.zeros(rows, dtype=torch.bool, device="cuda")

        def run() -> None:
            for map in made:
                if self.best:
                    map.choose(x, tokens, broken)
                else:
                    map(x, more)

        return Work(run, count)

    def torchs(self) -> Work:
        """The product alone, by torch."""
        wide = self.outs * (1 + self.gated)
        made = [drawn(wide, self.ins) for _ in range(max(2, -(-MEMORY // self.bytes())))]
        x = drawn(self.rows, self.ins)
        return Work(lambda: [F.linear(x, weight) for weight in made] and None, len(made))


class Attention(NamedTuple):
    """A step's attention of a model."""

    name: str
    heads: tuple[int, int]  # of queries and of keys
    turns: bool = False  # rotary positions
    rows: int = 1
    size: int = 64

    def constant(self) -> str:
        """The tile of launch_step that is about it."""
        if self.heads[0] != self.heads[1]:
            return "TOGETHER"
        return "ALONE" if self.rows == 1 else "CROWDED"

    def options(self) -> list[Any]:
        """Tiles to try, what is there now first."""
        from anyformer.ops.kernels import launch_step as launch

        here = getattr(launch, self.constant())
        sizes = ((1024, 1), (2048, 1), (2048, 2), (4096, 2), (4096, 4), (8192, 4), (8192, 8))
        many = (here.programs,) if self.rows == 1 else (6336, 1584, 1)
        others = [launch.Tile(*size, programs) for size in sizes for programs in many]
        return [here, *(tile for tile in others if tile != here)]

    def set(self, option: Any) -> dict[str, Any]:
        """Constants of launch_step with a tile."""
        return {self.constant(): option}

    def work(self, layers: int | None) -> Work:
        """The attentions of a step, one a layer."""
        from anyformer.ops.step import Slots, Step

        (heads, groups), size, rows = self.heads, self.size, self.rows
        count = layers or 16
        caches = [[drawn(rows, groups, LIVE, size) for _ in "kv"] for _ in range(count)]
        how = Step(self.heads, (size, size), 0.125, like=caches[0][0])
        y = drawn(rows, (heads + 2 * groups) * size)
        at = torch.tensor([AT], device="cuda")
        wave: Any = None
        if self.turns:
            wave = tuple(torch.rand(1, size // 2, device="cuda") for _ in "cs")

        def run() -> None:
            for keys, values in caches:
                how(y, Slots(keys, values, at, LIVE), wave)

        return Work(run, count)

    def bytes(self) -> int:
        """Those of keys and values that are read."""
        return 4 * self.rows * self.heads[1] * AT * self.size


GPT2 = (
    Map("GPT-2 q, k, v", 768, 2304, "layer"),
    Map("GPT-2 out", 768, 768, more=True),
    Map("GPT-2 up", 768, 3072, "layer", act="gelu_tanh"),
    Map("GPT-2 down", 3072, 768, more=True),
    Map("GPT-2 head", 768, 50257, "layer", best=True),
)
LLAMA = (
    Map("Llama q, k, v", 2048, 3072, "root"),
    Map("Llama out", 2048, 2048, more=True),
    Map("Llama up", 2048, 8192, "root", True, "silu"),
    Map("Llama down", 8192, 2048, more=True),
    Map("Llama head", 2048, 128256, "root", best=True),
)
STEPS = (Attention("GPT-2 attention", (12, 12)), Attention("Llama attention", (32, 8), True))
WORKS: tuple[Map | Attention, ...] = (*GPT2, *LLAMA, *STEPS)
WORKS += tuple(work._replace(name=f"{work.name}, 64 rows", rows=TENS) for work in (*GPT2, *STEPS))


class Trial(NamedTuple):
    """What is measured: a work with one cut or tile."""

    of: Map | Attention
    option: Any
    early: bool = False

    @contextmanager
    def set(self) -> Iterator[None]:
        """The constants that it is about."""
        from anyformer.ops.kernels import launch_rows, launch_step

        module = launch_rows if isinstance(self.of, Map) else launch_step
        with changed(launch_rows, EARLY=self.early), changed(module, **self.of.set(self.option)):
            yield

    def __str__(self) -> str:
        """As the constants are written."""
        place = (
            f"({self.of.ins}, {self.of.outs}, {self.of.gated})" if isinstance(self.of, Map) else ""
        )
        return f"{self.of.constant()} {place}: {self.option}"


def drawn(*shape: int) -> torch.Tensor:
    """Small numbers."""
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16) * 0.02


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
    try:
        with torch.inference_mode(), trial.set():
            trial.of.work(1).run()
    except RuntimeError as error:  # too much shared memory: measured as never
        print(f"{trial}: {str(error).splitlines()[0][:80]}", flush=True)


def spent(trial: Trial, work: Work) -> float:
    """Microseconds of a trial; without end where it doesn't run."""
    try:
        with trial.set():
            return micros(work)
    except RuntimeError:
        return float("inf")


def _measured(of: Map | Attention, table: Table) -> None:
    """The rows of one work: as it is now, the best, and both with kernels that start early."""
    work, some = of.work(None), of.options()
    every = [Trial(of, option, early) for early in (False, True) for option in some]
    took = {trial: spent(trial, work) for trial in every}
    late = [trial for trial in every if not trial.early]
    for label, trial in (("now", late[0]), ("best", min(late, key=lambda t: took[t]))):
        soon = took[trial._replace(early=True)]
        table.rows.append([of.name, label, str(trial), f"{took[trial]:.2f}", f"{soon:.2f}", ""])
    best = min((t for t in every if t.early), key=lambda t: took[t])
    speed = f"{of.bytes() / took[best] / 1e6:.2f}"
    table.rows.append([of.name, "best early", str(best), "", f"{took[best]:.2f}", speed])
    if isinstance(of, Map) and of.rows > 1:
        table.rows.append([of.name, "torch", "", f"{micros(of.torchs()):.2f}", "", ""])
    table.raw[of.name] = {f"{t}{' early' * t.early}": micro for t, micro in took.items()}


def rows(settings: Settings) -> None:
    """Measure the candidates on a GPU; other processes compile them before, all at once."""
    if settings.device != "cuda" or not torch.cuda.is_available():
        raise SystemExit("the cuts of rows are those of a GPU: pass --device cuda where one is")
    works = [of for of in WORKS if not settings.only or of.name in settings.only]
    every = [Trial(of, o, early) for of in works for o in of.options() for early in (False, True)]
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compiled, every))
    table = Table("Maps of few rows", ["map", "", "constants", "µs", "µs, early", "TB/s"])
    with torch.inference_mode():
        for of in works:
            _measured(of, table)
            torch.cuda.empty_cache()
            print(*table.rows[-4:], sep="\n", flush=True)
    table.show(settings, "gpu_rows")
