"""From tensors to the kernels of an update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton import language as tl

from anyformer.ops.kernels import launch_sums, update

NUMBERS, WARPS = 2048, 4  # of a piece, which a program reads at once
EACH = 4  # pieces that a program updates in turn
PROGRAMS = 6  # for each multiprocessor, which share the squares
MOST = 1024  # programs: each weight's reads what all of them have summed
TYPES: dict[torch.dtype, Any] = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class How(NamedTuple):
    """AdamW's numbers, and the most that the norm of all gradients may be."""

    betas: tuple[float, float]
    eps: float
    most: float


class Pieces(NamedTuple):
    """Tensors in pieces: owner (C,) and number (C,) of each, size and decay of tensors (T,)."""

    owners: Tensor
    numbers: Tensor
    sizes: Tensor
    decays: Tensor


class Site(NamedTuple):
    """Numbers of one call."""

    pieces: int
    parts: int
    most: float
    keeps: float
    takes: float
    exponent: float
    square_keeps: float
    square_takes: float
    square_exponent: float
    eps: float


class Shape(NamedTuple):
    """What the kernels are compiled for."""

    N: int
    P: int
    EACH: int
    EVEN: bool  # sizes are multiples of 16
    LOW: Any


def pieces(sizes: Sequence[int], decays: Sequence[float], device: torch.device) -> Pieces:
    """How tensors of some sizes are shared out."""
    counts = torch.tensor([-(-size // NUMBERS) for size in sizes])
    owners = torch.repeat_interleave(torch.arange(len(sizes)), counts)
    numbers = torch.arange(len(owners)) - (counts.cumsum(0) - counts)[owners]
    tables = (owners.int(), numbers.int(), torch.tensor(sizes), torch.tensor(decays))
    return Pieces(*(table.to(device) for table in tables))


def run(addresses: Tensor, split: Pieces, how: How, even: bool, low: torch.dtype) -> Tensor:
    """Update all weights of addresses (T, 7) in place; the norm () of all gradients before."""
    many = len(split.owners)
    programs = min(many, PROGRAMS * launch_sums.processors(addresses), MOST)
    parts = addresses.new_empty(programs, dtype=torch.float32)
    norm = addresses.new_empty((), dtype=torch.float32)
    shape = Shape(NUMBERS, MOST, EACH, even, TYPES[low])
    mean, square = map(_average, how.betas)
    site = Site(many, programs, how.most, *mean, *square, how.eps)
    first = (addresses, split, parts)
    launch_sums.start(update.squares, (programs,), WARPS, *first, site, shape)
    launch_sums.start(update.update, (-(-many // EACH),), WARPS, *first, norm, site, shape)
    return norm


def _average(beta: float) -> tuple[float, float, float]:
    """What an average keeps, what it takes, and the logarithm of what it keeps."""
    return beta, 1 - beta, math.log2(beta) if beta else -math.inf
