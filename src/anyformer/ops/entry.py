"""The entry of a decoding step: the vectors of tokens and of their places, summed by one kernel."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("anyformer::entry", mutates_args=())
def run_entry(ids: Tensor, places: Tensor, tables: list[Tensor], offset: int) -> Tensor:
    """ids (B, 1) and places (1 or B, 1) by tables of tokens (V, d) and of places -> (B, 1, d).

    Places below 0, which padding has, count as 0; `offset` is added to all.
    """
    from anyformer.ops.kernels import launch_entry  # Triton is no dependency

    return launch_entry.run(ids.contiguous(), places.contiguous(), tables, offset)


@run_entry.register_fake
def _(ids: Tensor, places: Tensor, tables: list[Tensor], offset: int) -> Tensor:
    return tables[0].new_empty(*ids.shape, tables[0].shape[1])
