"""Relative terms: what distance adds to a score, as at most three tables and a slope.

Letters: H heads, Q queries, K keys, R rows of a table, D head size, L = Q + K - 1 distances.
Row r of a table stands for the distance k - q = low + r; distances beyond low and high count as
low and high. s[q, k] += bias[h, Δ] + q·query[h, Δ] + k·key[h, Δ] - slope[h]·|k - q|.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Pick = Callable[[Tensor | None], Tensor | None]

TILE = 128  # keys of one tile of the key side, more where the queries are


@dataclass(frozen=True, eq=False)
class Relative:
    """Tables by distance, scaled already: bias (H, R), query and key (H or 1, R, D); slope (H,).

    The slope has no end: scores go on falling with the distance. One alone needs no rows.
    """

    low: int
    high: int
    bias: Tensor | None = None
    query: Tensor | None = None
    key: Tensor | None = None
    slope: Tensor | None = None

    def tables(self) -> list[Tensor]:
        """The tables that are there."""
        return [t for t in (self.bias, self.query, self.key) if t is not None]

    def tensors(self) -> list[Tensor]:
        """The tables that are there, and the slope."""
        return self.tables() if self.slope is None else [*self.tables(), self.slope]

    def apart(self) -> Relative:
        """The same tensors as leaves of their own."""
        bias, query, key, slope = map(leaf, (self.bias, self.query, self.key, self.slope))
        return Relative(self.low, self.high, bias, query, key, slope)

    def rows(self, low: int, high: int, device: torch.device) -> Tensor:
        """The row of each distance from low to high."""
        distances = torch.arange(low, high + 1, device=device)
        return distances.clamp(self.low, self.high) - self.low

    def reach(self, low: int, high: int) -> Relative:
        """The same terms with tables for the distances low..high."""
        if (low, high) == (self.low, self.high):
            return self
        if not self.tables():
            return Relative(low, high, slope=self.slope)
        if self.low <= low and high <= self.high:
            part = lambda t: None if t is None else t.narrow(1, low - self.low, high - low + 1)
            return self._changed(low, high, part)
        return self._picked(low, high, self.rows(low, high, self.tensors()[0].device))

    def at(self, distances: Tensor) -> Relative:
        """The same terms with a row for each of some distances (K,) in a row."""
        return self._picked(0, 0, distances.clamp(self.low, self.high) - self.low)

    def level(self, distances: Tensor | None = None) -> Tensor | None:
        """What each row adds whoever asks, (H, R): its bias, less what the slope takes off.

        distances (R,) are those of the rows, without which they are low..high.
        """
        if self.slope is None:
            return self.bias
        slope = self.slope.to(torch.promote_types(self.slope.dtype, torch.float32))
        if distances is None:
            like: dict[str, Any] = {"dtype": slope.dtype, "device": slope.device}
            distances = torch.arange(self.low, self.high + 1, **like)
            fall = slope[:, None] * (distances if self.high <= 0 else -distances.abs())
        else:
            fall = slope[:, None] * -distances.abs()
        return fall if self.bias is None else self.bias + fall

    def _picked(self, low: int, high: int, rows: Tensor) -> Relative:
        return self._changed(low, high, lambda t: None if t is None else t.index_select(1, rows))

    def _changed(self, low: int, high: int, pick: Pick) -> Relative:
        return Relative(low, high, pick(self.bias), pick(self.query), pick(self.key), self.slope)


def leaf(x: Tensor | None) -> Tensor | None:
    """X without what it was made from; it learns if x does."""
    return None if x is None else x.detach().requires_grad_(x.requires_grad)


def merge(terms: list[Relative]) -> Relative | None:
    """One set of tables, and one slope, that adds what all add."""
    if len(terms) < 2:
        return terms[0] if terms else None
    ends = [(t.low, t.high) for t in terms if t.tables()] or [(0, 0)]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    wide = [t.reach(low, high) for t in terms]
    return Relative(
        low,
        high,
        _sum([t.bias for t in wide]),
        _sum([t.query for t in wide]),
        _sum([t.key for t in wide]),
        _sum([t.slope for t in wide]),
    )


def _sum(tables: list[Tensor | None]) -> Tensor | None:
    there = [t for t in tables if t is not None]
    return sum(there[1:], there[0]) if there else None


def skew(x: Tensor, keys: int) -> Tensor:
    """From distances to keys: x (..., Q, L) -> (..., Q, K), out[i, j] = x[i, j - i + Q - 1]."""
    queries, length = x.shape[-2:]
    if queries == 1:
        return x[..., :keys]
    flat = x.flatten(-2)[..., queries - 1 : queries - 1 + queries * (length - 1)]
    return flat.unflatten(-1, (queries, length - 1))[..., :keys]  # (..., Q, K)


def scores(q: Tensor, k: Tensor, relative: Relative, first_q: int | Tensor, first_k: int) -> Tensor:
    """The terms for q (B, H, Q, ≥D) at positions first_q.. and k (B, H, K, ≥D) at first_k...

    Returns (1 or B, H, Q, K). Channels of q and k beyond the tables' width are left out.
    """
    queries, keys, distances = q.shape[2], k.shape[2], None
    if isinstance(first_q, Tensor):  # of the one query
        distances = torch.arange(first_k, first_k + keys, device=q.device) - first_q
        near = relative.at(distances)
    else:
        near = relative.reach(first_k - (first_q + queries - 1), first_k + keys - 1 - first_q)
    total, level = None, near.level(distances)
    if level is not None:
        wide = level[:, None].expand(-1, queries, -1)  # (H, Q, L)
        total = skew(wide, keys)[None].to(q.dtype)
    if near.query is not None:
        by_distance = q[..., : near.query.shape[-1]] @ near.query.mT.to(q.dtype)  # (B, H, Q, L)
        total = _plus(total, skew(by_distance, keys))
    if near.key is not None:
        total = _plus(total, _key_side(k, near, queries))
    assert total is not None, "a Relative has at least one table, or a slope"
    return total


def _key_side(k: Tensor, near: Relative, queries: int) -> Tensor:
    """k_j · key[j - i], (B, H, Q, K): the mirror image of the query side, transposed.

    A tile of keys at a time, since all keys by all distances would be quadratic in the keys.
    """
    assert near.key is not None
    k, table = k[..., : near.key.shape[-1]], near.key.to(k.dtype)
    if queries == 1:
        return (k * table).sum(-1)[:, :, None]
    step, tiles = max(queries, TILE), []
    for i, tile in enumerate(k.split(step, 2)):
        first = i * step
        rows = table[:, first : first + queries + tile.shape[2] - 1]  # (H or 1, Q + T - 1, D)
        by_distance = tile @ rows.flip(1).mT  # (B, H, T, Q + T - 1), by i - j
        tiles.append(skew(by_distance, queries).mT)
    return torch.cat(tiles, -1)


def _plus(total: Tensor | None, term: Tensor) -> Tensor:
    return term if total is None else total + term


def t5_bucket(distance: Tensor, count: int, max_distance: int, bidirectional: bool) -> Tensor:
    """T5's bucket of each distance k - q (arXiv:1910.10683): exact near, logarithmic beyond."""
    offset = torch.zeros_like(distance)
    if bidirectional:
        count //= 2
        offset = (distance > 0).long() * count
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = count // 2
    ratio = torch.log(distance.clamp(min=1).float() / exact)
    far = exact + (ratio / math.log(max_distance / exact) * (count - exact)).long()
    return offset + torch.where(distance < exact, distance, far.clamp(max=count - 1))


def log_bucket(distance: Tensor, count: int, reach: int) -> Tensor:
    """DeBERTa's signed bucket of each distance (arXiv:2006.03654): count / 2 exact ones, then log.

    At a distance of reach - 1 it is count - 1.
    """
    half = count // 2
    far = distance.abs().clamp(min=half)
    ratio = torch.log(far / half) / torch.log(torch.tensor((reach - 1) / half))
    grown = half + torch.ceil(ratio * (half - 1)).long()
    return torch.where(far > half, grown * distance.sign(), distance)


def alibi_slopes(heads: int) -> Tensor:
    """ALiBi's slopes: a geometric series, filled up from the next one beside powers of 2."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes)
