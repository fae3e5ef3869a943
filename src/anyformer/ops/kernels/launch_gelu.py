"""From tensors to the kernels of a GELU behind a bias."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels import gelu

ROWS, COLUMNS, WARPS = 4, 512, 4  # that a program reads at once
PROGRAMS = 256  # that share the rows of a column


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


def forward(h: Tensor, bias: Tensor, tanh: bool) -> Tensor:
    """h (T, F), bias (F,) -> gelu(h + bias)."""
    out = torch.empty_like(h)
    _start(gelu.forward, _site(h), tanh, h, bias, out)
    return out


def backward(grad: Tensor, h: Tensor, bias: Tensor, tanh: bool) -> tuple[Tensor, Tensor]:
    """The gradients of h (T, F) and, in float32, of the bias (F,)."""
    site, out = _site(h), torch.empty_like(h)
    sums = h.new_empty(_programs(site), site.width, dtype=torch.float32)
    _start(gelu.backward, site, tanh, grad, h, bias, out, sums)
    return out, sums.sum(0)


def _site(h: Tensor) -> Site:
    """How rows are shared out: alike, and in whole reads."""
    rows, width = h.shape
    each = -(-rows // PROGRAMS)
    return Site(rows, width, max(ROWS, each + -each % ROWS))


def _programs(site: Site) -> int:
    """How many share the rows of a column."""
    return -(-site.rows // site.each)


def _start(kernel: Any, site: Site, tanh: bool, *given: Tensor) -> None:
    """Launch a kernel on the device of its tensors."""
    grid = (-(-site.width // COLUMNS), _programs(site))
    with torch.cuda.device(given[0].device) if given[0].is_cuda else nullcontext():
        kernel[grid](*given, site, Shape(ROWS, COLUMNS, tanh), num_warps=WARPS)
