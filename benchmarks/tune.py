"""Tile sizes of the Triton kernels, each tried alone: `python -m benchmarks tune --device cuda`.

A switch's step, forward and backward, is timed with one kernel's tiles changed and the others as
they are (ops/kernels/launch.py), or with another number where kernels are launched (NUMBERS).
Compiling takes far longer than measuring, so that several processes fill Triton's cache first, each
size with a time limit, and one measures and prints what it finds. With `--device cpu` and
TRITON_INTERPRET=1 it runs, and measures nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import NamedTuple
from unittest.mock import patch

import torch

from benchmarks.ahead import ahead
from benchmarks.contestants import OURS, Contestant, Place
from benchmarks.runner import Settings, Table
from benchmarks.switches import made

LENGTH, TOKENS, HEADS, TIMES = 8192, 32768, 12, 5
TINY = Place("cpu", torch.float32, 1, 40, 4)
Tiles = tuple[int, ...]  # queries, keys, warps, stages, registers, stages of near tiles
PLAIN: dict[str, list[Tiles]] = {
    "forward": [
        *((128, 64, 4, 2), (128, 32, 8, 3), (128, 64, 8, 2, 128), (128, 64, 8, 3)),
        *((64, 64, 4, 3, 128, 2), (64, 64, 4, 3, 168, 2), (64, 128, 4, 3), (128, 128, 8, 2)),
    ],
    "queries": [
        *((64, 64, 4, 3), (64, 64, 4, 2, 168), (64, 32, 4, 3), (64, 32, 4, 3, 128)),
        *((128, 32, 4, 3), (128, 64, 8, 2), (64, 128, 4, 2)),
    ],
    "keys": [
        *((64, 64, 4, 3), (64, 64, 4, 2), (32, 64, 4, 2, 168), (32, 64, 4, 3), (32, 64, 4, 4, 168)),
        *((32, 128, 8, 3, 128), (64, 128, 8, 2)),
    ],
}
SQUARE: list[Tiles] = [(64, 64, 4, 1), (64, 64, 4, 2), (64, 64, 4, 2, 168), (32, 32, 4, 3)]
FOUR = {**PLAIN, "tables": SQUARE}
LEANING: dict[str, list[Tiles]] = {  # and the kernels of slants, rows by distances
    "forward": [(64, 64, 4, 2), (64, 64, 4, 3), (128, 64, 8, 3), (128, 32, 8, 2), (64, 32, 4, 3)],
    "queries": [(64, 64, 4, 1), (64, 64, 4, 3), (64, 32, 4, 2), (64, 32, 4, 3)],
    "keys": [(32, 64, 4, 1), (32, 64, 4, 3), (64, 64, 4, 1), (64, 64, 4, 2)],
    "lean": [(64, 64, 4, 1), (64, 32, 4, 2), (128, 64, 8, 2), (128, 64, 4, 2)],
    "slant": [(64, 64, 4, 1), (32, 64, 4, 2), (128, 64, 4, 1), (64, 32, 4, 2)],
    "pull": [(64, 64, 4, 1), (64, 32, 4, 2), (128, 64, 8, 1), (64, 128, 4, 1)],
}
BOUNDS: list[Tiles] = [(64, 128, 8, 2), (64, 128, 8, 4), (64, 64, 4, 3), (64, 32, 4, 3)]
X = 64  # of a shelf
SHELVED: dict[str, list[Tiles]] = {
    "shelved": [(X, X, 4, 1), (X, X, 4, 2), (X, X, 4, 3), (X, X, 4, 1, 168), (X, X, 4, 2, 168)],
    "shelved_queries": [(X, X, 4, 1), (X, X, 4, 2), (X, X, 4, 1, 168)],
    "shelved_keys": [(X, X, 4, 1), (X, X, 4, 2), (X, X, 4, 1, 168)],
}
XL: dict[str, list[Tiles]] = {
    "shelved": SHELVED["shelved"],
    **{"onward": [(1,)], "room": [(64,), (192,)], "spread": [(4,), (24,)], "shares": [(1,)]},
    "at once": [(1,)],
}
NUMBERS = {  # of other modules, by name: where they are, and what a number here counts
    "onward": ("anyformer.ops.kernels.launch_onepass", "ONWARD", 1),
    "room": ("anyformer.ops.kernels.launch_onepass", "ROOM", 1 << 20),
    "at once": ("anyformer.ops.kernels.launch_onepass", "AT_ONCE", 1),
    "spread": ("anyformer.ops.kernels.launch_onepass", "SPREAD", 1),
    "shares": ("anyformer.ops.kernels.launch_ends", "SHARES", 1),
    "turns": ("anyformer.ops.far", "TURNS", 1),
}
WORKS = {  # by name: a switch, the backend that runs it, and the kernels whose tiles are tried
    "T5 bias": ("T5 bias", "tiles", FOUR),
    "learned ALiBi": ("learned ALiBi", "tiles", PLAIN),
    "Transformer-XL": ("Transformer-XL", "tiles", LEANING),
    "Transformer-XL, shelves": ("Transformer-XL", "shelves", XL),
    "DeBERTa": ("DeBERTa", "tiles", LEANING),
    "DeBERTa, shelves": ("DeBERTa", "shelves", SHELVED),
    "DeBERTa, far": ("DeBERTa", "far", {"turns": [(1,), (2,)]}),
    "Shaw": ("Shaw", "far", SHELVED),
    "top-k": ("top-k", "sparse", {"threshold": BOUNDS}),
    "entmax": ("entmax", "sparse", {"levels": BOUNDS, "roots": PLAIN["forward"]}),
}


class Try(NamedTuple):
    """One measurement: a work with another size of one kernel's tiles; none: as it is."""

    work: str
    kernel: str = ""
    size: Tiles = (0, 0, 0, 0)


def tries(only: tuple[str, ...]) -> Iterator[Try]:
    """All that is measured, each work as it is first."""
    for work, (_, _, kernels) in WORKS.items():
        if not only or work in only:
            yield Try(work)
            yield from (Try(work, k, size) for k, sizes in kernels.items() for size in sizes)


@contextmanager
def tiled(one: Try) -> Iterator[None]:
    """Within it, one kernel has other tiles, or one number is another."""
    from anyformer.ops.kernels import launch, launch_shelves, launch_slants

    if not one.kernel:
        yield
        return
    if one.kernel in NUMBERS:
        module, name, unit = NUMBERS[one.kernel]
        with patch.object(import_module(module), name, one.size[0] * unit):
            yield
        return
    slants = {"lean": launch_slants.LEANS, "slant": launch_slants.SUMS, "pull": launch_slants.PULLS}
    tables = [launch.PLAIN, launch.VECTORS, launch.LEANING, launch_shelves.SIZES, slants]
    tables = [table for table in tables if one.kernel in table]
    before = [table[one.kernel].copy() for table in tables]
    for table in tables:
        table[one.kernel].clear()
        table[one.kernel][256] = launch.Size(*one.size)
    try:
        yield
    finally:
        for table, sizes in zip(tables, before, strict=True):
            table[one.kernel].clear()
            table[one.kernel].update(sizes)


def spent(one: Try, place: Place, times: int) -> tuple[float, str]:
    """Milliseconds of a step, the best of some, and why there are none where it doesn't run."""
    found = []
    try:
        switch, backend, _ = WORKS[one.work]
        step = made(place, Contestant(one.work, OURS, switch, backend))
        with tiled(one):
            step(1)
            if times and place.device == "cuda":
                step.capture()
            for _ in range(times):
                start = time.perf_counter()
                step(1)
                found.append(1e3 * (time.perf_counter() - start))
    except Exception as error:  # Triton's own, of too much shared memory and of much else
        return float("inf"), f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
    return min(found, default=0.0), ""


def compile_one(piece: tuple[Try, Place]) -> None:
    """Run a step once, so that what is compiled for it is kept on disk."""
    torch.set_num_threads(1)
    spent(*piece, 0)


def tune(settings: Settings) -> None:
    """Measure every size, and say which is best for each kernel of each switch."""
    gpu = settings.device == "cuda"
    name = "h200_tiles" if gpu else "cpu_tiles"
    dtype = torch.bfloat16 if gpu else torch.float32
    length = settings.lengths[0] if settings.lengths else LENGTH
    rows = max(1, TOKENS // length)
    place = Place(settings.device, dtype, HEADS, length, rows) if gpu else TINY
    wanted, late = list(tries(settings.only)), {}
    if gpu:
        short = Place("cuda", dtype, HEADS, 1024, 4)  # compiled alike
        late = ahead(compile_one, [(one, short) for one in wanted], settings.limit)
    table = Table(
        f"Tiles, {settings.device}",
        ["work", "kernel", "queries, keys, warps, stages, registers", "ms", "of now"],
    )
    now: dict[str, float] = {}
    for i, one in enumerate(wanted):
        left_out = (float("inf"), f"compiling: {late[i]}") if i in late else None
        ms, why = left_out or spent(one, place, TIMES if gpu else 1)
        now.setdefault(one.work, ms)
        size = " ".join(map(str, one.size)) if one.kernel else "as it is"
        ratio = why or f"{ms / now[one.work]:.3f}"
        table.rows.append([one.work, one.kernel or "all", size, f"{ms:.2f}", ratio])
        table.raw[" ".join([one.work, one.kernel, size])] = ms
        print(" | ".join(table.rows[-1]), flush=True)
        table.keep(settings, name)
    table.rows.sort(key=lambda row: (list(WORKS).index(row[0]), row[1], float(row[3])))
    table.show(settings, name)
