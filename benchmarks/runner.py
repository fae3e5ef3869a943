"""Interleaved timing and tables.

Every contestant runs once a round, in a new order each time, so that what else the machine does
falls on all alike. A ratio is a peer's time over ours, above 1 we are faster: of the best times,
and, beside it, the median over the rounds with its 95 % interval (bootstrap).
"""

from __future__ import annotations

import json
import pathlib
import platform
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from benchmarks.pictures import beside


@dataclass(frozen=True)
class Settings:
    """What the command line asked for."""

    rounds: int = 5
    threads: int = 2
    dtypes: tuple[str, ...] = ("float32",)
    compile: bool = False
    out: str | None = None
    only: tuple[str, ...] = ()  # cases to measure again; the others stay as the table has them
    texts: int = 10_000  # of predict
    device: str = "cpu"
    limit: float = 60.0  # seconds in which the kernels of one contestant are compiled
    lengths: tuple[int, ...] = ()  # of switches; none: 1,024; on a GPU 8,192 and 32,768 too


@dataclass
class Table:
    """A titled table that prints as Markdown and is kept as JSON and a picture beside it."""

    title: str
    head: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    raw: dict[str, object] = field(default_factory=dict)

    def text(self) -> str:
        widths = [
            max(len(str(r[i])) for r in [self.head, *self.rows]) for i in range(len(self.head))
        ]
        line = lambda cells: "| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths)) + " |"  # noqa: B905
        rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
        body = "\n".join([line(self.head), rule, *map(line, self.rows)])
        notes = "".join(f"\n- {note}" for note in [*self.notes, machine()])
        return f"## {self.title}\n\n{body}\n{notes}\n"

    def show(self, settings: Settings, name: str) -> None:
        """Print the table; with --out also write it."""
        print(self.text(), flush=True)
        self.keep(settings, name)

    def keep(self, settings: Settings, name: str) -> None:
        """With --out, write it."""
        if settings.out is not None:
            folder = pathlib.Path(settings.out)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.md").write_text(self.text())
            (folder / f"{name}.json").write_text(json.dumps(self.raw, indent=1))
            beside(folder / f"{name}.md")


def machine() -> str:
    """The machine and versions, in one line."""
    cpu = platform.processor() or platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    level = torch.backends.cpu.get_cpu_capability()
    return f"{cpu} ({level}), {torch.get_num_threads()} threads, torch {torch.__version__}"


def race(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each step in each round, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    order, dice = list(steps), random.Random(0)
    for turn in range(rounds + 1):
        dice.shuffle(order)
        for name in order:
            start = time.perf_counter()
            steps[name]()
            if turn:
                times[name].append(time.perf_counter() - start)
    return times


def interval(ratios: list[float], draws: int = 2000) -> tuple[float, float, float]:
    """The median of the ratios and the ends of its 95 % bootstrap interval."""
    dice = random.Random(0)
    medians = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(draws))
    return statistics.median(ratios), medians[draws // 40], medians[-draws // 40]


def rows_of(times: dict[str, list[float]], ours: str) -> list[list[str]]:
    """Name, best and median milliseconds, the ratio of best times to ours, and that by rounds."""
    rows = []
    for name, t in times.items():
        middle, low, high = interval([a / b for a, b in zip(t, times[ours], strict=True)])
        rows.append(
            [
                name,
                f"{min(t) * 1e3:.0f}",
                f"{statistics.median(t) * 1e3:.0f}",
                f"{min(t) / min(times[ours]):.2f}",
                f"{middle:.2f} ({low:.2f} to {high:.2f})",
            ]
        )
    return rows
