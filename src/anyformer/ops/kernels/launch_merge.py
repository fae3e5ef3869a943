"""From tensors to the kernel that merges two parts of an attention."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import power, view
from anyformer.ops.kernels.merge import merge as kernel

ROWS = 64  # of a program

Part = tuple[Tensor, Tensor]  # output (B, H, N, D) and log-sum-exp (B, H, N)


class Site(NamedTuple):
    """Numbers of one call."""

    first: int
    many: int
    heads: int


class Shape(NamedTuple):
    """What the kernel is compiled for."""

    M: int
    D: int
    BD: int


def merge(part: Part, other: Part, first: int) -> None:
    """Add another part to the rows of one from `first` on, in place.

    The log-sum-exp of the one is in units of log 2, that of the other in units of 1.
    """
    out, lse = part
    batch, heads, count, size = other[0].shape
    lines = lambda x: view(x[..., None])
    site, shape = Site(first, count, heads), Shape(ROWS, size, power(size))
    with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
        run: Any = kernel[(-(-count // ROWS), batch * heads)]
        run(view(out), lines(lse), view(other[0]), lines(other[1].contiguous()), site, shape)
