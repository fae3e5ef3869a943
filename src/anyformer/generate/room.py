"""How much memory a cache takes, said before it is taken."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import torch

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.model import Model
from anyformer.spec.schedule import turns
from anyformer.spec.walk import head_dim, linears, qk_dim, sublayers

READING = 8  # what a prompt passes through may take one part in so many of the memory that is free
FEWEST = 256  # positions of a prompt that are always read together
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def seats(stack: S.Stack) -> Iterator[tuple[str, S.Attention]]:
    """Every attention of every application that has keys of its own, by its path in a cache."""
    plan = S.layout(stack)
    lent = stack.loop is not None and stack.loop.keys == "first"
    for i, b in enumerate(plan.schedule):
        if lent and turns(stack)[i][1]:
            continue
        for j, sub in enumerate(plan.blocks[b]):
            several = isinstance(sub.branch, S.Parallel)
            for n, leaf in enumerate(sub.leaves):
                if isinstance(leaf, S.Attention):
                    yield (f"{i}.{j}.{n}" if several else f"{i}.{j}"), leaf


def windows_of(stack: S.Stack) -> dict[str, int]:
    """The attentions that can do with the keys of their windows, and how many those are."""
    found = {p: leaf.window for p, leaf in seats(stack) if leaf.window and not leaf.cross}
    return {} if any(leaf.carry for _, leaf in seats(stack)) else found


def rings_of(stack: S.Stack, room: int) -> frozenset[str]:
    """Those whose window is smaller than the room and whose keys may lie in any order."""
    if stack.relative or stack.untied is not None or stack.distances is not None:
        return frozenset()
    leaves, small = dict(seats(stack)), windows_of(stack)
    return frozenset(p for p, w in small.items() if w < room and not leaves[p].relative)


def cache_bytes(spec: S.Model, rows: int, length: int, dtype: torch.dtype, met: int = 0) -> int:
    """The bytes of a cache for rows of a length, whose cross-attentions meet `met` positions."""
    total, rings = 0, rings_of(spec.stack, length)
    for path, leaf in seats(spec.stack):
        groups = leaf.kv_heads or leaf.heads
        keys = 1 if leaf.collaborate is not None else groups
        width = keys * qk_dim(leaf, spec.dim) + groups * head_dim(leaf, spec.dim)
        held = leaf.window if path in rings and leaf.window else length
        total += width * (met if leaf.cross else held)
    return rows * total * dtype.itemsize


def readable(size: float) -> str:
    """A size in bytes for people."""
    for unit in UNITS[:-1]:
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} {UNITS[-1]}"


def free_bytes(device: torch.device) -> int:
    """The memory that a device has left for new tensors."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    told = pathlib.Path("/proc/meminfo")
    for line in told.read_text().splitlines() if told.exists() else ():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_room(model: Model, rows: int, length: int, dtype: torch.dtype) -> None:
    """Raise where a cache won't fit, with what it takes and what there is."""
    needs = cache_bytes(model.spec, rows, length, dtype)
    there = free_bytes(next(model.parameters()).device)
    if needs > there:
        raise InputError(
            f"a cache for {rows} rows of {length} positions takes {readable(needs)}, but "
            f"{readable(there)} are free: continue fewer rows at a time, or write fewer tokens"
        )


def read_bytes(spec: S.Model, rows: int, length: int, dtype: torch.dtype) -> int:
    """About how many bytes one sublayer takes to read rows of a length, whose scores are small."""
    leaves = [leaf for sub in sublayers(spec.stack) for leaf in sub.leaves]
    outs = [sum(out for _, out, _ in linears(leaf, spec.dim).values()) for leaf in leaves]
    return rows * length * (2 * max(outs, default=0) + 4 * spec.dim) * dtype.itemsize


def at_a_time(model: Model, rows: int, length: int) -> int | None:
    """Positions of a prompt that are read together, where all of them would take much memory."""
    if length <= FEWEST:
        return None
    first = next(model.parameters())
    most = free_bytes(first.device) // READING
    size = length
    while size > FEWEST and read_bytes(model.spec, rows, size, first.dtype) > most:
        size = 1 << (size - 1).bit_length() - 1  # the next power of two below
    return None if size == length else max(size, FEWEST)
