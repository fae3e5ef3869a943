"""From tensors to the kernels for few rows."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import power
from anyformer.ops.kernels.rows import best, row, rows
from anyformer.ops.kernels.wide import normed, wide
from anyformer.ops.rows import MOST

SINGLE = 4  # rows up to which each is a vector of its own
SEVERAL = 16  # rows up to which one small tile of products holds them
PROGRAMS = 264  # that keep a GPU busy
DEEP = 2048  # weights of an output that a program reads at once, at most
TILE = 128  # inputs of a tile of rows
MANY = 8192  # tops that are compared at once
EARLY = True  # kernels start while the one before still runs


class Cut(NamedTuple):
    """How the map of a single row is cut into programs."""

    n: int  # outputs of a program
    k: int  # weights of each that it asks for at once
    warps: int
    evict: str = ""  # evict_first: what is read makes room in the cache at once


# (ins, outs, gated) -> the fastest that `python -m benchmarks rows` found on an H200; others by
# `cut_of`
CUTS = {
    (768, 2304, False): Cut(4, 1024, 4, "evict_first"),
    (768, 768, False): Cut(8, 1024, 8),
    (768, 3072, False): Cut(4, 1024, 4),
    (3072, 768, False): Cut(4, 2048, 8),
    (768, 50257, False): Cut(16, 256, 8),
    (2048, 3072, False): Cut(8, 1024, 8),
    (2048, 2048, False): Cut(2, 1024, 4),
    (2048, 8192, True): Cut(1, 2048, 4),
    (8192, 2048, False): Cut(2, 4096, 8),
    (2048, 128256, False): Cut(16, 256, 4),
}


class Block(NamedTuple):
    """How the map of tens of rows is cut into programs."""

    n: int  # outputs of a program
    k: int  # inputs that it reads at once
    warps: int
    stages: int
    shares: int = 1  # programs that part the inputs
    ahead: bool = True  # weights are asked for before the kernel before has ended


# as CUTS, for tens of rows, in whole steps of GPT-2 (benchmarks/NOTES.md); others by `block_of`
BLOCKS = {
    (768, 2304, False): Block(32, 256, 4, 3),
    (768, 768, False): Block(32, 128, 4, 6),
    (768, 3072, False): Block(32, 256, 4, 3),
    (3072, 768, False): Block(32, 128, 4, 6, shares=3),
    (768, 50257, False): Block(128, 64, 4, 3, ahead=False),
}

SLIM = (
    *((16, 128, 4, 4), (16, 128, 4, 6), (16, 256, 4, 3), (32, 128, 4, 3), (32, 128, 4, 6)),
    *((32, 256, 4, 3), (64, 128, 4, 3), (64, 128, 4, 6)),
)
BROAD = ((128, 64, 4, 4), (128, 64, 4, 3), (128, 128, 4, 2), (128, 64, 8, 3), (256, 64, 8, 3))
BLOCK_CANDIDATES = tuple(
    Block(*sizes, shares, ahead)
    for some, parted in ((SLIM, (1, 2, 3, 6)), (BROAD, (1,)))
    for sizes in some
    for shares in parted
    for ahead in (False, True)
)
CANDIDATES = (
    Cut(1, 1024, 4), Cut(2, 1024, 4), Cut(4, 1024, 4), Cut(4, 1024, 8), Cut(8, 1024, 8),
    Cut(8, 256, 4), Cut(16, 256, 4), Cut(16, 256, 8), Cut(4, 512, 4), Cut(8, 512, 4),
    Cut(16, 512, 8), Cut(1, 2048, 4), Cut(2, 2048, 8), Cut(4, 2048, 8), Cut(2, 4096, 8),
    Cut(4, 1024, 4, "evict_first"), Cut(16, 256, 4, "evict_first"),
)  # fmt: skip


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
    BEST: bool
    EARLY: bool
    M: int
    N: int
    K: int
    EVICT: str = ""
    AHEAD: bool = False
    SHARES: int = 1
    DEPTH: int = 0  # inputs of a share
    LINES: int = 1  # of 128 bytes of those, or more


class Ends(NamedTuple):
    """What the kernel that compares tops is compiled for."""

    N: int
    EARLY: bool


def run(
    x: Tensor,
    maps: list[Tensor],
    norm: tuple[str, float, list[Tensor]],
    act: str,
    more: list[Tensor],
    arrived: Tensor,
) -> Tensor:
    """x (rows, ins) -> (rows, outs), with what anyformer.ops.rows.run_rows is given."""
    out = x.new_empty(len(x), maps[0].shape[0])
    _run(x, maps, norm, act, (more, out, False), arrived)
    return out


def choose(
    x: Tensor,
    maps: list[Tensor],
    norm: tuple[str, float, list[Tensor]],
    act: str,
    tokens: Tensor,
    broken: Tensor,
    arrived: Tensor,
) -> None:
    """Write the first of each row's greatest outputs to tokens (rows,), and where it is no number.

    One kernel leaves the greatest of each of its programs, a second compares those.
    """
    many, soon = programs(x, maps[0], len(maps) > 2), early(x)
    tops = x.new_empty(len(x), many, dtype=torch.float32)
    places = x.new_empty(len(x), many, dtype=torch.int32)
    _run(x, maps, norm, act, ([places], tops, True), arrived)
    ends = Ends(min(MANY, power(many)), soon)
    launch(
        best, (len(x),), soon, max(4, ends.N // 512),
        tops, places, tokens, broken.view(torch.uint8), Site(0.0, many), ends,
    )  # fmt: skip


def early(x: Tensor) -> bool:
    """Whether kernels may start before those before them have ended: on Hopper and later."""
    return EARLY and x.is_cuda and torch.cuda.get_device_capability(x.device) >= (9, 0)


def launch(
    kernel: Any, grid: tuple[int, ...], early: bool, warps: int, *given: Any, **options: int
) -> None:
    """Launch a kernel on the device of its first tensor."""
    if early:
        options["launch_pdl"] = True
    with torch.cuda.device(given[0].device) if given[0].is_cuda else nullcontext():
        kernel[grid](*given, num_warps=warps, **options)


def cut_of(ins: int, outs: int, gated: bool, many: int) -> Cut:
    """The cut of a map of `many` rows: the fastest that was measured, or one like those."""
    if (ins, outs, gated) in CUTS:
        return CUTS[ins, outs, gated]
    deep, wide = min(DEEP, power(ins)), 1
    while wide < 8192 // deep and -(-outs // (2 * wide)) * many >= 2 * PROGRAMS:
        wide *= 2
    return Cut(wide, deep, 4 if deep * wide <= 4096 else 8)


def block_of(ins: int, outs: int, gated: bool) -> Block:
    """The block of a map of tens of rows: the fastest that was measured, or one like those."""
    if (ins, outs, gated) in BLOCKS:
        return BLOCKS[ins, outs, gated]
    if outs > MANY:
        return Block(128, 64, 4, 3, ahead=False)
    shares = max(1, min(-(-PROGRAMS * 8 // outs), ins // 512))
    return Block(32, min(128, power(ins)), 4, 6, shares)


def programs(x: Tensor, weight: Tensor, gated: bool) -> int:
    """Into how many parts outputs are cut."""
    outs, ins = weight.shape
    many = len(x)
    if many > SEVERAL:
        return -(-outs // block_of(ins, outs, gated).n)
    cut = cut_of(ins, outs, gated, many).n if many <= SINGLE else _wide(outs)
    return -(-outs // cut)


def _run(
    x: Tensor,
    maps: list[Tensor],
    norm: tuple[str, float, list[Tensor]],
    act: str,
    ends: tuple[list[Tensor], Tensor, bool],
    arrived: Tensor,
) -> None:
    weight, bias, *gate = maps
    kind, eps, vectors = norm
    more, out, top = ends
    (many, ins), outs = x.shape, weight.shape[0]
    padded = lambda found, size: [*found, *[out] * (size - len(found))]  # never read
    both = (weight, bias, *padded(gate, 2))
    given = (x, both, tuple(padded(vectors, 3)), *padded(more, 1), out, Site(eps, many))
    soon = early(x)
    facts = (ins, outs, kind, act, bool(gate), bool(more) and not top, top, soon)
    if many <= SINGLE:
        cut = cut_of(ins, outs, bool(gate), many)
        shape = Shape(*facts, M=1, N=cut.n, K=min(cut.k, power(ins)), EVICT=cut.evict)
        launch(row, (many * -(-outs // cut.n),), soon, cut.warps, *given, shape)
        return
    if many > SEVERAL:
        _tens(x, given, facts, arrived)
        return
    high, across = min(64, power(many)), _wide(outs)
    shape = Shape(*facts, M=high, N=across, K=32 if x.dtype == torch.float32 else TILE)
    launch(rows, (-(-outs // across), -(-many // high)), soon, 4, *given, shape)


def _tens(x: Tensor, given: tuple[Any, ...], facts: tuple[Any, ...], arrived: Tensor) -> None:
    """Launch the kernels for tens of rows."""
    ins, outs, kind, _, gated, _, top, soon = facts
    assert len(x) <= MOST, "more rows than the kernels are meant for"
    _, maps, norm, more, out, site = given
    if kind != "none":
        bare, x = x, torch.empty_like(x)
        shape = Shape(*facts, M=1, N=1, K=power(ins))
        launch(normed, (len(x),), soon, max(1, shape.K // 256), bare, norm[0], x, site, shape)
    block, small = block_of(ins, outs, gated), x.dtype == torch.float32
    parts, step = -(-outs // block.n), max(16, block.k // 4) if small else block.k
    depth = -(-ins // ((1 if gated or top else block.shares) * step)) * step
    shares, lines = -(-ins // depth), power(depth * x.element_size() // 128)
    shape = Shape(
        *facts, M=max(64, power(len(x))), N=block.n, K=step, AHEAD=block.ahead, SHARES=shares,
        DEPTH=depth, LINES=lines,
    )  # fmt: skip
    sums = x.new_empty(parts * shares * shape.M * shape.N if shares > 1 else 1, dtype=torch.float32)
    launch(
        wide, (parts, shares), soon, block.warps, x, maps, more, out, (sums, arrived), site, shape,
        num_stages=1 if small else block.stages,
    )  # fmt: skip


def _wide(outs: int) -> int:
    """Outputs of a tile of rows: sixteen where there are few, so that programs are enough."""
    wide = 16
    while wide < 64 and -(-outs // (2 * wide)) >= PROGRAMS // 2:
        wide *= 2
    return wide
