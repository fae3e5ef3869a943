"""From tensors to the kernel of norms."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import Size, Work, power, start, view
from anyformer.ops.kernels.norms import norms as kernel


class Span(NamedTuple):
    """What the kernel is compiled for: rows at a time, head size, and size in a tile."""

    M: int
    D: int
    BD: int


def norms(work: Work, parts: int) -> Tensor:
    """Squares of the largest norms of q and k by parts of their rows, (B, H, 2, C); 0 parts: ()."""
    q = work.q
    batch, heads, queries, wide = q.shape
    if not parts:
        return q.new_empty(0, dtype=torch.float32)
    found = q.new_empty(batch, heads, 2, parts, dtype=torch.float32)
    each = -(-max(queries, work.k.shape[2] - work.facts.lead) // parts)
    span = Span(32 if wide > 128 else 64, wide, power(wide))
    start(
        kernel, (parts, batch * heads), Size(span.M, 0, 4, 2),
        view(q), view(work.k), view(found), work.site(), each, span,
    )  # fmt: skip
    return found
