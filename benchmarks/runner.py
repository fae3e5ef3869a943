"""Interleaved timing and tables.

Every contestant runs once a round, in turn, so that what else the machine does falls on all
alike. A ratio is a peer's best time over ours: above 1 we are faster.
"""

from __future__ import annotations

import json
import pathlib
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Settings:
    """What the command line asked for."""

    rounds: int = 5
    threads: int = 2
    dtypes: tuple[str, ...] = ("float32",)
    compile: bool = False
    out: str | None = None
    only: tuple[str, ...] = ()  # cases to measure again; the others stay as the table has them


@dataclass
class Table:
    """A titled table that prints as Markdown and is kept as JSON beside it."""

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
        if settings.out is not None:
            folder = pathlib.Path(settings.out)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.md").write_text(self.text())
            (folder / f"{name}.json").write_text(json.dumps(self.raw, indent=1))


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
    for turn in range(rounds + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if turn:
                times[name].append(time.perf_counter() - start)
    return times


def rows_of(times: dict[str, list[float]], ours: str) -> list[list[str]]:
    """Name, best and median milliseconds, and the ratio of best times to ours."""
    best = {name: min(t) for name, t in times.items()}
    return [
        [
            name,
            f"{best[name] * 1e3:.0f}",
            f"{statistics.median(t) * 1e3:.0f}",
            f"{best[name] / best[ours]:.2f}",
        ]
        for name, t in times.items()
    ]
