"""A run's numbers: JSON lines always, and trackers where asked.

`metrics.jsonl` has what the run computes and nothing that depends on the clock, so a run that was
stopped and went on has the same file as one that wasn't; `speed.jsonl` has the rest.
"""

from __future__ import annotations

import json
import math
import os
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from anyformer.errors import TrainError

METRICS, SPEED = "metrics.jsonl", "speed.jsonl"


class Sink(Protocol):
    """Something that takes numbers of a step."""

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """Take the numbers of a step."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


class Log:
    """The JSON lines of a run and its trackers."""

    def __init__(self, folder: Path, trackers: tuple[str, ...] = (), name: str = "run"):
        self.sinks: list[Sink] = [open_sink(t, folder, name) for t in trackers]
        self.file = (folder / METRICS).open("ab")
        self.speed = (folder / SPEED).open("ab")

    def write(self, record: dict[str, Any]) -> None:
        """Append a record; its numbers go to the trackers too."""
        self.file.write(line(record))
        self.file.flush()
        plain = {k: v for k, v in record.items() if isinstance(v, int | float) and k != "step"}
        for sink in self.sinks:
            sink.write(int(record["step"]), {k: float(v) for k, v in plain.items()})

    def time(self, record: dict[str, Any]) -> None:
        """Append what depends on the clock."""
        self.speed.write(line(record))
        self.speed.flush()
        numbers = {f"speed/{k}": v for k, v in record.items() if isinstance(v, float)}
        for sink in self.sinks:
            sink.write(int(record["step"]), numbers)

    def mark(self) -> int:
        """Where the log ends, made durable."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.file.tell()

    def cut(self, mark: int) -> None:
        """Forget what was written behind a mark."""
        self.file.flush()
        self.file.truncate(min(mark, self.file.seek(0, os.SEEK_END)))
        self.file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Write what is left."""
        self.file.close()
        self.speed.close()
        for sink in self.sinks:
            sink.close()


def line(record: dict[str, Any]) -> bytes:
    """A record as a line of strict JSON: what is not finite is a string."""
    strict = lambda v: str(v) if isinstance(v, float) and not math.isfinite(v) else v
    return json.dumps({k: strict(v) for k, v in record.items()}).encode() + b"\n"


def read(folder: Path) -> list[dict[str, Any]]:
    """The records of a run; a last line that was cut short is left out."""
    path = folder / METRICS
    found: list[dict[str, Any]] = []
    for text in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


MODULES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "trackio": "trackio"}


def module_of(tracker: str) -> Any:
    """The module of a tracker; an error where it isn't installed."""
    try:
        return import_module(MODULES[tracker])
    except ImportError as error:
        raise TrainError(
            f"{tracker} is not installed: pip install {tracker}, or leave it out of trackers"
        ) from error


def open_sink(tracker: str, folder: Path, name: str) -> Sink:
    """A tracker by name."""
    module = module_of(tracker)
    return (
        _TensorBoard(module, folder) if tracker == "tensorboard" else _Hosted(module, name, folder)
    )


class _TensorBoard:
    """Event files in the run's folder."""

    def __init__(self, module: Any, folder: Path):
        self.writer = module.SummaryWriter(str(folder / "tensorboard"))

    def write(self, step: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class _Hosted:
    """W&B, or trackio, which has the same calls."""

    def __init__(self, module: Any, name: str, folder: Path):
        self.module = module
        where = {"dir": str(folder)} if module.__name__ == "wandb" else {}
        module.init(project="anyformer", name=name, **where)

    def write(self, step: int, numbers: dict[str, float]) -> None:
        self.module.log(numbers, step=step)

    def close(self) -> None:
        self.module.finish()
