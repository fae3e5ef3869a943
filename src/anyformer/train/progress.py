"""How fast a run goes, and a line about it on the terminal.

FLOPs of a step are three times those of the forward pass, which the spec gives: backward counts
twice. The machine's peak comes from a table of devices; of a CPU it is measured once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import torch

from anyformer.errors import AnyformerError
from anyformer.model.count import count
from anyformer.objectives.base import Batch
from anyformer.spec import Model

# TFLOP/s without sparsity, as the makers state them: half precision, float32 (TF32 where it is).
PEAKS = {
    "H200": (989.5, 494.7),
    "H100 PCIe": (756.0, 378.0),
    "H100": (989.5, 494.7),
    "B200": (2250.0, 1125.0),
    "GH200": (989.5, 494.7),
    "A100": (312.0, 156.0),
    "A10": (125.0, 62.5),
    "A40": (149.7, 74.8),
    "L40S": (362.0, 183.0),
    "L4": (121.0, 60.0),
    "V100": (125.0, 15.7),
    "T4": (65.0, 8.1),
    "RTX 4090": (165.2, 82.6),
    "RTX 3090": (71.0, 35.6),
}
IDS = ("input_ids", "decoder_input_ids", "inputs_embeds", "pixel_values")


def peak(device: torch.device, precision: str) -> tuple[float, str] | None:
    """FLOP/s that a device can do at most, and where that number comes from."""
    if device.type == "cpu":
        return _measured(precision), "measured"
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    found = next((v for k, v in PEAKS.items() if k in name), None)
    return None if found is None else (found[precision == "float32"] * 1e12, "stated")


@cache
def _measured(precision: str, size: int = 256, most: float = 0.05) -> float:
    """FLOP/s of one matrix product on this CPU, the best within some seconds."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    a, b = torch.ones(size, size, dtype=dtype), torch.ones(size, size, dtype=dtype)
    best, begun = float("inf"), time.perf_counter()
    while time.perf_counter() - begun < most:
        start = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def work(spec: Model, batch: Batch) -> float | None:
    """FLOPs of a training step on a batch; None where they can't be told."""
    found = next((batch[n] for n in IDS if n in batch), None)
    if found is None or found.ndim < 2:
        return None
    rows = found.shape[:-1].numel() if found.ndim == 3 and not found.is_floating_point() else 0
    try:
        length = None if found.ndim == 4 else found.shape[-1 if rows or found.ndim == 2 else 1]
        return 3.0 * count(spec, length, rows or found.shape[0]).flops
    except AnyformerError:
        return None


def tokens(batch: Batch) -> int:
    """The positions of a batch that a model reads."""
    return sum(batch[n].shape[:2].numel() for n in IDS[:2] if n in batch) or len(
        next(iter(batch.values()))
    )


class Speed:
    """Tokens and FLOPs since the last look."""

    def __init__(self, device: torch.device, precision: str, world: int):
        self.device, self.precision, self.world = device, precision, world
        self.begun = self.last = time.perf_counter()
        self.done = self.tokens = 0
        self.waited = 0.0  # seconds in which a batch wasn't there yet
        self.flops: float | None = 0.0
        self._work: dict[Any, float | None] = {}

    def watched(self, source: Iterable[list[Batch]]) -> Iterator[list[Batch]]:
        """The batches of a source; the time that each is waited for counts."""
        batches = iter(source)
        while True:
            start = time.perf_counter()
            found = next(batches, None)
            self.waited += time.perf_counter() - start
            if found is None:
                return
            yield found

    def add(self, spec: Model, batches: list[Batch]) -> None:
        """Count the micro-batches of a step."""
        self.done += 1
        for batch in batches:
            self.tokens += tokens(batch)
            shape = tuple((k, v.shape) for k, v in batch.items())
            if shape not in self._work and len(self._work) < 1000:
                self._work[shape] = work(spec, batch)
            found = self._work.get(shape)
            self.flops = None if found is None or self.flops is None else self.flops + found

    def rest(self, seconds: float) -> None:
        """Leave out seconds in which nothing was trained."""
        self.begun += seconds
        self.last += seconds

    def look(self) -> dict[str, Any]:
        """Tokens per second, share of the peak (stated or measured), memory, seconds so far.

        `waiting_share` is the part of the time that the loop waited for batches.
        """
        now = time.perf_counter()
        passed, steps = max(now - self.last, 1e-9), self.done
        found: dict[str, Any] = {"seconds": now - self.begun}
        found["step_seconds"] = passed / max(steps, 1)
        found["tokens_per_second"] = self.world * self.tokens / passed
        most = peak(self.device, self.precision)
        if self.flops is not None and most is not None:
            found["share_of_peak"] = self.flops / passed / most[0]
            found["peak"] = most[1]
        found["waiting_share"] = self.waited / passed
        found["memory"] = memory(self.device)
        self.last, self.done, self.tokens, self.flops, self.waited = now, 0, 0, 0.0, 0.0
        return found


def memory(device: torch.device) -> float:
    """Bytes in use at most so far: of the GPU, or of this process."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ImportError:  # not on this system
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


class Progress:
    """A line on stderr, where that is a terminal: loss, speed, share of the peak, time left."""

    def __init__(self, steps: int, shown: bool | None = None, quiet: bool = False):
        self.bar: Any = None
        self.quiet = quiet  # says nothing at all: another rank does
        shown = False if quiet else shown
        if sys.stderr.isatty() if shown is None else shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = [BarColumn(20), MofNCompleteColumn(), TextColumn("{task.fields[told]}")]
            console = Console(stderr=True)
            self.bar = Bar(*columns, TimeRemainingColumn(), console=console, transient=False)
            self.task = self.bar.add_task("train", total=steps, told="")
            self.bar.start()

    def show(self, done: int, loss: float, speed: dict[str, Any]) -> None:
        """Show where a run is."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done, told=told(loss, speed))

    def say(self, text: str) -> None:
        """Print a line above the bar, or on stderr."""
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        elif not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the line as it is."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def told(loss: float, speed: dict[str, Any]) -> str:
    """Loss and speed in words."""
    parts = [f"loss {loss:.4f}", f"{speed['tokens_per_second']:,.0f} tokens/s"]
    if "share_of_peak" in speed:
        parts.append(f"{speed['share_of_peak']:.0%} of the {speed['peak']} peak")
    parts.append(f"{speed['memory'] / 2**30:.1f} GiB")
    return ", ".join(parts)
