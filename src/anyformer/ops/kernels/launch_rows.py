"""From tensors to the kernels for few rows."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import power
from anyformer.ops.kernels.rows import row, rows

SINGLE = 4  # rows up to which each is a vector of its own
PROGRAMS = 264  # that keep a GPU busy
DEEP = 2048  # weights of an output that a program reads at once, at most
TILE = 128  # inputs of a tile of rows


class Site(NamedTuple):
    """Numbers of one call."""

    eps: float
    many: int  # rows


class Shape(NamedTuple):
    """What a kernel is compiled for: the map, what stands around it, and its tiles."""

    ins: int
    outs: int
    NORM: str  # none, layer, root
    ACT: str
    GATED: bool
    MORE: bool
    M: int
    N: int
    K: int


def run(
    x: Tensor,
    maps: list[Tensor],
    norm: tuple[str, float, list[Tensor]],
    act: str,
    more: list[Tensor],
) -> Tensor:
    """x (rows, ins) -> (rows, outs), with what anyformer.ops.rows.run_rows is given."""
    weight, bias, *gate = maps
    kind, eps, vectors = norm
    (many, ins), outs = x.shape, weight.shape[0]
    out = x.new_empty(many, outs)
    padded = lambda found, size: [*found, *[out] * (size - len(found))]  # never read
    both = (weight, bias, *padded(gate, 2))
    given = (x, both, tuple(padded(vectors, 3)), *padded(more, 1), out, Site(eps, many))
    facts = (ins, outs, kind, act, bool(gate), bool(more))
    with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
        if many <= SINGLE:
            _vectors(given, facts, many)
        else:
            _tiles(given, facts, many)
    return out


def _vectors(given: tuple, facts: tuple, many: int) -> None:
    ins, outs = facts[:2]
    deep = min(DEEP, power(ins))
    wide = 1
    while wide < 8192 // deep and -(-outs // (2 * wide)) * many >= 2 * PROGRAMS:
        wide *= 2
    shape = Shape(*facts, M=1, N=wide, K=deep)
    kernel: Any = row
    kernel[many, -(-outs // wide)](*given, shape, num_warps=4 if deep * wide <= 4096 else 8)


def _tiles(given: tuple, facts: tuple, many: int) -> None:
    outs = facts[1]
    high = min(64, power(many))
    wide = 16
    while wide < 64 and -(-outs // (2 * wide)) >= PROGRAMS // 2:
        wide *= 2
    shape = Shape(*facts, M=high, N=wide, K=32 if given[0].dtype == torch.float32 else TILE)
    grid = (-(-outs // wide), -(-many // high))
    kernel: Any = rows
    kernel[grid](*given, shape, num_warps=4, num_stages=3)
