"""From what programs have summed to its sum, and how many programs share rows."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

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
    with at(parts):
        sums.columns[grid](parts, out, site, Shape(ROWS, COLUMNS), num_warps=WARPS)
    return out


def at(x: Tensor) -> AbstractContextManager[object]:
    """Within it kernels are launched on the device of x."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def processors(x: Tensor) -> int:
    """Multiprocessors of the device of x."""
    return _processors(x.device) if x.is_cuda else HERE


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
