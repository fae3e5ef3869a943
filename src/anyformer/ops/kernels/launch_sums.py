"""From what programs have summed to its sum, and how many programs share rows."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels import sums

ROWS, COLUMNS, WARPS = 128, 16, 4  # that a program reads at once
HERE = 3  # multiprocessors that a CPU counts as, where Triton runs in Python


class Site(NamedTuple):
    """Numbers of one call."""

    rows: int
    width: int


class Shape(NamedTuple):
    """What the kernel is compiled for."""

    R: int
    C: int


def columns(parts: Tensor) -> Tensor:
    """parts (P, ...) of float32 -> their sum (...)."""
    out = parts.new_empty(parts.shape[1:])
    site = Site(parts.shape[0], out.numel())
    grid = (-(-site.width // COLUMNS),)
    start(sums.columns, grid, WARPS, parts, out, site, Shape(ROWS, COLUMNS))
    return out


def start(kernel: Any, grid: tuple[int, ...], warps: int, first: Tensor, *given: Any) -> None:
    """Launch a kernel on the device of its tensors."""
    with torch.cuda.device(first.device) if first.is_cuda else nullcontext():
        kernel[grid](first, *given, num_warps=warps)


def processors(x: Tensor) -> int:
    """Multiprocessors of the device of x."""
    return _processors(x.device) if x.is_cuda else HERE


@functools.cache
def _processors(device: torch.device) -> int:
    """Asked once: the question takes longer than a launch."""
    return torch.cuda.get_device_properties(device).multi_processor_count
