"""From tensors to the kernel of a step's entry."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from anyformer.ops.kernels.entry import entry
from anyformer.ops.kernels.launch import power
from anyformer.ops.kernels.launch_rows import early, launch


class Site(NamedTuple):
    """Numbers of one call."""

    apart: int  # from row to row of the places: 0 where all stand at the same
    offset: int


class Shape(NamedTuple):
    """What the kernel is compiled for."""

    WIDE: int
    BLOCK: int
    EARLY: bool


def run(ids: Tensor, places: Tensor, tables: list[Tensor], offset: int) -> Tensor:
    """ids (B, 1), places (1 or B, 1) -> (B, 1, d), as anyformer.ops.entry.run_entry is given."""
    rows, wide = len(ids), tables[0].shape[1]
    out = tables[0].new_empty(rows, 1, wide)
    soon = early(out)
    site, shape = Site(int(len(places) > 1), offset), Shape(wide, power(wide), soon)
    warps = max(1, min(8, shape.BLOCK // 256))
    launch(entry, (rows,), soon, warps, ids, places, tuple(tables), out, site, shape)
    return out
