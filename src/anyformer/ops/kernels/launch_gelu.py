"""From tensors to the kernels of a GELU behind a bias."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels import gelu, launch_sums

ROWS, COLUMNS, WARPS = 4, 512, 4  # that a program reads at once
FORWARD, BACKWARD = 10, 7  # programs for each multiprocessor: as many as it has at a time
STAGES = 2  # reads of the backward pass that are on their way, with the one at work


class Site(NamedTuple):
    """Numbers of one call."""

    rows: int
    width: int
    each: int  # rows of a program


class Shape(NamedTuple):
    """What a kernel is compiled for."""

    R: int
    C: int
    TANH: bool
    STAGES: int


def forward(h: Tensor, bias: Tensor, tanh: bool) -> Tensor:
    """h (T, F), bias (F,) -> gelu(h + bias)."""
    out = torch.empty_like(h)
    _start(gelu.forward, _site(h, FORWARD), tanh, h, bias, out)
    return out


def backward(grad: Tensor, h: Tensor, bias: Tensor, tanh: bool) -> tuple[Tensor, Tensor]:
    """The gradients of h (T, F) and, in float32, of the bias (F,)."""
    site, out = _site(h, BACKWARD), torch.empty_like(h)
    parts = h.new_empty(_programs(site), site.width, dtype=torch.float32)
    _start(gelu.backward, site, tanh, grad, h, bias, out, parts)
    return out, launch_sums.columns(parts)


def _site(h: Tensor, most: int) -> Site:
    """How rows are shared out: alike, in whole reads, to programs that all run at once."""
    rows, width = h.shape
    each = -(-rows // max(1, most * launch_sums.processors(h) // _tiles(width)))
    return Site(rows, width, max(ROWS, each + -each % ROWS))


def _tiles(width: int) -> int:
    """How many programs have the columns of a row."""
    return -(-width // COLUMNS)


def _programs(site: Site) -> int:
    """How many share the rows of a column."""
    return -(-site.rows // site.each)


def _start(kernel: Any, site: Site, tanh: bool, *given: Tensor) -> None:
    """Launch a kernel on the device of its tensors."""
    grid, shape = (_tiles(site.width), _programs(site)), Shape(ROWS, COLUMNS, tanh, STAGES)
    launch_sums.start(kernel, grid, WARPS, *given, site, shape)
