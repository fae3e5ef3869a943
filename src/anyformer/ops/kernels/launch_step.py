"""From tensors to the kernel for a decoding step's attention."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels import launch_rows
from anyformer.ops.kernels.launch import power, view
from anyformer.ops.kernels.step import step as kernel
from anyformer.ops.step import Facts

JOINED = 2048  # numbers that each warp of the last share joins, at most


class Tile(NamedTuple):
    """How much of the keys a program reads at once, and what with."""

    scores: int  # channels of its keys
    warps: int
    programs: int  # that keep a GPU busy


# As `python -m benchmarks rows` found them on an H200.
ALONE = Tile(1024, 1, 6336)  # where each query head has keys of its own
CROWDED = Tile(2048, 2, 1)  # the same, where rows and heads alone are many programs
TOGETHER = Tile(8192, 4, 528)  # where several share theirs
MANY = 264  # key heads of all rows that keep a GPU busy


class Site(NamedTuple):
    """Numbers of one call."""

    scale: float
    room: int
    kept: int  # from row to row of what is kept


class Shape(NamedTuple):
    """What the kernel is compiled for."""

    heads: int  # of keys
    group: int  # query heads for each
    D: int
    E: int
    HALF: int
    PAIRS: bool
    APART: int  # 1: rows stand at positions of their own
    WINDOW: int
    RING: bool
    KEPT: bool
    SHARES: int
    PARTS: int
    GROUP: int
    M: int
    N: int
    BD: int
    BE: int
    EARLY: bool


def tile_of(rows: int, facts: Facts) -> Tile:
    """The tile for a call of some rows."""
    if facts.heads != facts.groups:
        return TOGETHER
    return ALONE if rows * facts.groups <= MANY else CROWDED


def keys_of(tile: Tile, facts: Facts) -> int:
    """Keys of a tile."""
    return max(16, min(128, tile.scores // power(max(facts.size, facts.value_size))))


def shares_of(rows: int, facts: Facts) -> int:
    """Programs for each key head of `rows` rows: more than one where few would leave a GPU idle."""
    tile = tile_of(rows, facts)
    tiles = -(-facts.live // keys_of(tile, facts))
    each = _next(facts.heads // facts.groups) * power(facts.value_size)
    return max(1, min(tiles, tile.programs // (rows * facts.groups), JOINED * tile.warps // each))


def run(
    y: Tensor,
    cache: tuple[Tensor, Tensor, Tensor, Tensor],
    more: tuple[list[Tensor], list[Tensor]],
    facts: Facts,
    scale: float,
) -> Tensor:
    """y (B, …) -> (B, H·E); cache: keys, values, position, arrivals; more: wave and keep."""
    keys, values, at, arrived = cache
    wave, keep = more
    rows, group = y.shape[0], facts.heads // facts.groups
    shares, tile = shares_of(rows, facts), tile_of(rows, facts)
    out = y.new_empty(rows, facts.heads * facts.value_size)
    part = lambda *shape: y.new_empty(shape, dtype=torch.float32)
    sums = (out, out, out)
    if shares > 1:
        many = rows * facts.groups * shares * group
        sums = (part(many, facts.value_size), part(many), part(many))
    early = launch_rows.early(y)
    shape = Shape(
        heads=facts.groups,
        group=group,
        D=facts.size,
        E=facts.value_size,
        HALF=facts.half,
        PAIRS=bool(facts.pairs),
        APART=int(bool(wave) and len(wave[0]) > 1),
        WINDOW=facts.window,
        RING=bool(facts.ring),
        KEPT=bool(keep),
        SHARES=shares,
        PARTS=_next(shares),
        GROUP=_next(group),
        M=1 if group == 1 else max(16, _next(group)),
        N=keys_of(tile, facts),
        BD=power(facts.size),
        BE=power(facts.value_size),
        EARLY=early,
    )
    site = Site(scale, keys.shape[2], keep[0].stride(0) if keep else 0)
    launch_rows.launch(
        kernel, (rows * facts.groups, shares), early, tile.warps,
        y, (view(keys), view(values), at), (*(wave or (out, out)), *(keep or (out,))),
        (*sums, arrived), out, site, shape,
    )  # fmt: skip
    return out


def _next(size: int) -> int:
    """The least power of two that isn't below a number."""
    return 1 << (size - 1).bit_length()
