"""Tile sizes of the Triton kernels, each tried alone: `python -m benchmarks tune --device cuda`.

A switch's step, forward and backward, is timed with one kernel's tiles changed and the others as
they are (ops/kernels/launch.py). Compiling takes far longer than measuring, so that several
processes fill Triton's cache first, and one measures. With `--device cpu` and TRITON_INTERPRET=1 it
runs, and measures nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import NamedTuple

import torch

from anyformer.ops.attend import attend
from benchmarks.runner import Settings, Table
from benchmarks.switches import Place, stepper, switches

LENGTH, ROWS, HEADS, TIMES = 8192, 2, 12, 5
WIDE = [
    *((128, 64, 4, 2), (128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2), (64, 128, 8, 2)),
    *((64, 64, 4, 2), (64, 64, 4, 3), (128, 32, 4, 3), (64, 32, 4, 3)),
]
SQUARE = [
    *((64, 64, 4, 1), (64, 64, 4, 2), (64, 64, 8, 1), (64, 64, 8, 2)),
    *((32, 32, 4, 1), (32, 32, 4, 2), (128, 128, 8, 1)),
]
FOUR = {"forward": WIDE, "queries": WIDE, "keys": WIDE, "tables": SQUARE}
ALIKE = dict.fromkeys(FOUR, SQUARE)  # with vectors in the tables tiles are square
WORKS = {  # the switch, the backend that runs it, and the kernels whose tiles are tried
    "T5 bias": ("tiles", FOUR),
    "Transformer-XL": ("tiles", ALIKE),
    "DeBERTa": ("tiles", ALIKE),
    "top-k": ("sparse", {"threshold": WIDE}),
    "entmax": ("sparse", {"threshold": WIDE, "roots": WIDE}),
}


class Try(NamedTuple):
    """One measurement: a switch with another size of one kernel's tiles; none: as it is."""

    switch: str
    kernel: str = ""
    size: tuple[int, int, int, int] = (0, 0, 0, 0)


def tries(only: tuple[str, ...]) -> Iterator[Try]:
    """All that is measured, each switch as it is first."""
    for switch, (_, kernels) in WORKS.items():
        if not only or switch in only:
            yield Try(switch)
            yield from (Try(switch, k, size) for k, sizes in kernels.items() for size in sizes)


@contextmanager
def tiled(one: Try) -> Iterator[None]:
    """Within it, one kernel has other tiles."""
    from anyformer.ops.kernels import launch

    if not one.kernel:
        yield
        return
    tables = [launch.PLAIN, launch.VECTORS]
    before = [table[one.kernel] for table in tables]
    for table in tables:
        table[one.kernel] = {256: launch.Size(*one.size)}
    try:
        yield
    finally:
        for table, sizes in zip(tables, before, strict=True):
            table[one.kernel] = sizes


def spent(one: Try, place: Place, times: int) -> tuple[float, str]:
    """Milliseconds of a step, the best of some, and why there are none where it doesn't run."""
    torch.manual_seed(0)
    (plan, lead), backend = switches(place)[one.switch], WORKS[one.switch][0]
    step = stepper(place, lambda q, k, v: attend(q, k, v, plan(), backend), lead, repeats=1)
    found = []
    try:
        with tiled(one):
            step()
            for _ in range(times):
                start = time.perf_counter()
                step()
                found.append(1e3 * (time.perf_counter() - start))
    except Exception as error:  # Triton's own, of too much shared memory and of much else
        return float("inf"), f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
    return min(found, default=0.0), ""


def _compiled(one: Try, place: Place) -> None:
    torch.set_num_threads(1)
    spent(one, place, 0)


def tune(settings: Settings) -> None:
    """Measure every size, and say which is best for each kernel of each switch."""
    gpu = settings.device == "cuda"
    dtype = torch.bfloat16 if gpu else torch.float32
    place = Place(settings.device, dtype, HEADS if gpu else 1, LENGTH if gpu else 40, ROWS)
    wanted = list(tries(settings.only))
    if gpu:
        short = Place("cuda", dtype, HEADS, 1024, 1)  # compiled alike
        with ProcessPoolExecutor(os.cpu_count() or 1, get_context("spawn")) as pool:
            list(pool.map(_compiled, wanted, [short] * len(wanted)))
    table = Table(
        f"Tiles, {settings.device}",
        ["switch", "kernel", "queries, keys, warps, stages", "ms", "of now"],
    )
    now: dict[str, float] = {}
    for one in wanted:
        ms, why = spent(one, place, TIMES if gpu else 1)
        now.setdefault(one.switch, ms)
        size = " ".join(map(str, one.size)) if one.kernel else "as it is"
        ratio = why or f"{ms / now[one.switch]:.3f}"
        table.rows.append([one.switch, one.kernel or "all", size, f"{ms:.2f}", ratio])
        table.raw[" ".join([one.switch, one.kernel, size])] = ms
    table.rows.sort(key=lambda row: (list(WORKS).index(row[0]), row[1], float(row[3])))
    table.show(settings, "h200_tiles" if gpu else "cpu_tiles")
