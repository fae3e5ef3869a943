"""From tensors to the kernel for one query."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import Size, power, start, view
from anyformer.ops.kernels.one import one as kernel
from anyformer.ops.kernels.tile import View

TILE = Size(16, 64, 4, 2)  # heads of a group at least, keys; how the kernel is compiled


class Site(NamedTuple):
    """Numbers of one call."""

    scale: float
    keys: int
    share: int  # keys of a program


class Shape(NamedTuple):
    """What the kernel is compiled for: sizes of tensors and of its tiles."""

    heads: int  # of keys
    group: int  # query heads for each
    apart: int  # 1: what is added differs from row to row, else 0
    M: int
    N: int
    D: int
    E: int
    BD: int
    BE: int


def one(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor, scale: float, shares: int
) -> tuple[Tensor, Tensor]:
    """q (B, H, 1, D) over keys, added (B or 1, K) -> (B, H, shares, E), log-sum-exps."""
    batch, heads, _, size = q.shape
    keys, group = k.shape[2], heads // k.shape[1]
    out = q.new_empty(batch, heads, shares, v.shape[-1], dtype=torch.float32)
    lse = q.new_empty(batch, heads, shares, dtype=torch.float32)
    shape = Shape(
        heads=k.shape[1],
        group=group,
        apart=int(added.shape[0] > 1),
        M=max(TILE.m, power(group)),
        N=TILE.n,
        D=size,
        E=v.shape[-1],
        BD=power(size),
        BE=power(v.shape[-1]),
    )
    share = -(-keys // shares)
    heads_as_rows = View(q, q.stride(0), 0, q.stride(1))
    start(
        kernel, (batch * k.shape[1], shares), TILE,
        heads_as_rows, view(k), view(v), added, out, lse,
        Site(scale, keys, share + -share % TILE.n), shape,
    )  # fmt: skip
    return out, lse
