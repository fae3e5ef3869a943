"""Disentangled attention: one table of vectors by distance, and what an attention makes of it.

Letters: H heads, R distances, T rows of the table, D channels of a head's q and k, d width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.ops.relative import Relative, log_bucket
from anyformer.parts.base import build, part

Map = Callable[[Tensor], Tensor]  # (1, T, d) -> (1, H, T, D)


@dataclass(frozen=True, eq=False)
class Vectors:
    """What stands for each distance k - q of low..high: rows[at[distance - low]]."""

    low: int
    high: int
    rows: Tensor  # (T, d)
    at: Tensor  # (R,)


@part(S.Distances)
class Distances(nn.Module):
    """A learned vector for each distance, or bucket of distances (arXiv:2006.03654)."""

    def __init__(self, spec: S.Distances, dim: int):
        super().__init__()
        self.spec = spec
        self.table = nn.Embedding(2 * spec.size, dim)
        self.norm = build(spec.norm, dim) if spec.norm is not None else None

    def forward(self, low: int, high: int) -> Vectors:
        """The vectors of distances k - q from low to high; beyond the reach they stay the same."""
        s = self.spec
        first, last = s.rows(low, high)
        rows = self.table(torch.arange(first, last + 1, device=self.table.weight.device))
        low, high = max(low, 1 - s.reach), min(high, s.reach)
        at = -torch.arange(low, high + 1, device=rows.device)  # q - k, which the table counts by
        at = at if s.buckets is None else log_bucket(at, s.buckets, s.reach)
        at = (at + s.size).clamp(0, 2 * s.size - 1) - first
        return Vectors(low, high, rows if self.norm is None else self.norm(rows), at)


@part(S.Disentangled)
class Disentangled(nn.Module):
    """q_i · K[Δ] and k_j · Q[Δ], with K and Q the keys and queries of distances (2006.03654)."""

    def __init__(self, spec: S.Disentangled, heads: int, size: int, dim: int):
        super().__init__()
        self.spec, self.size = spec, size
        own = not spec.shared
        self.k = nn.Linear(dim, heads * size, spec.bias) if own and spec.c2p else None
        self.q = nn.Linear(dim, heads * size) if own and spec.p2c else None

    def tables(self, found: Vectors, keys: Map, queries: Map, scale: float) -> Relative:
        """A query-side and a key-side table; `keys` and `queries` are the maps of the words."""
        drop, rows = self.spec.dropout, found.rows[None]
        rows = F.dropout(rows, drop) if drop and self.training else rows
        pick = lambda x: x[0].index_select(1, found.at) * scale  # (H, R, D)
        key = pick(self._split(self.k, rows, keys)) if self.spec.c2p else None
        query = pick(self._split(self.q, rows, queries)) if self.spec.p2c else None
        return Relative(found.low, found.high, query=key, key=query)

    def _split(self, own: nn.Linear | None, rows: Tensor, words: Map) -> Tensor:
        """(1, T, d) -> (1, H, T, D)."""
        if own is None:
            return words(rows)
        return own(rows).unflatten(-1, (-1, self.size)).transpose(1, 2)
