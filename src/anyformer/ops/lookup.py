"""Rows of a table by their numbers, whose gradients may wait for the end of a pass.

Torch sorts the numbers, sums the rows that are asked for twice and writes a gradient as large as
the table, which is then added to that of the head that shares it. Within `later` gradients of rows
are kept as they come, and added in place to what the table has when the pass is over: on a GPU in
the order in which they come, so not where torch is asked to be deterministic.

Letters: V rows, F width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Kept = list[tuple[Tensor, Tensor, Tensor]]  # table, numbers and gradients of rows
_open: list[Kept] = []


@contextmanager
def later() -> Iterator[None]:
    """Within it gradients of rows wait, and are added to those of their tables where it ends."""
    kept: Kept = []
    _open.append(kept)
    try:
        yield
        _add(kept)
    finally:
        _open.remove(kept)


def rows(ids: Tensor, table: Tensor) -> Tensor:
    """ids (...) of a table (V, F) -> (..., F)."""
    if not _open or torch.are_deterministic_algorithms_enabled() or not _learns(table):
        return F.embedding(ids, table)
    return _Rows.apply(ids, table, _open[-1])  # type: ignore[no-any-return]


class _Rows(torch.autograd.Function):
    """Rows whose gradients go to a list, and not to their table."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor, kept: Kept) -> Tensor:  # type: ignore[override]
        """As torch has them."""
        ctx.ids, ctx.table, ctx.kept = ids, table, kept
        return F.embedding(ids, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None]:  # type: ignore[override]
        """They wait."""
        ctx.kept.append((ctx.table, ctx.ids, grad))
        return None, None, None


def _learns(table: Tensor) -> bool:
    """Whether what a table learns can be added to in place."""
    return torch.is_grad_enabled() and table.is_leaf and table.requires_grad


@torch.no_grad()
def _add(kept: Kept) -> None:
    """Add gradients of rows to those of their tables."""
    for table, ids, grad in kept:
        if table.grad is None:
            table.grad = torch.zeros_like(table)
        table.grad.index_add_(0, ids.flatten(), grad.flatten(0, -2).to(table.grad.dtype))
