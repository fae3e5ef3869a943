"""A bar on the terminal while many inputs are answered."""

from __future__ import annotations

import sys
from typing import Any

LONG = 200  # inputs from which a bar is worth a line


class Bar:
    """A line on stderr, where that is a terminal and the inputs are many, or where asked for."""

    def __init__(self, name: str, total: int | None, shown: bool | None):
        self.name, self.total, self.done = name, total, 0
        self.wanted = sys.stderr.isatty() if shown is None else shown
        self.after = 0 if shown else LONG
        self.bar: Any = None

    def __enter__(self) -> Bar:
        if self.wanted and not self.after:
            self._start()
        return self

    def step(self) -> None:
        """One input more is answered."""
        self.done += 1
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done)
        elif self.wanted and self.done >= self.after:
            self._start()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = [TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn()]
        columns += [TimeElapsedColumn(), TimeRemainingColumn()]
        self.bar = Progress(*columns, console=Console(stderr=True))
        self.task = self.bar.add_task(self.name, total=self.total, completed=self.done)
        self.bar.start()

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
