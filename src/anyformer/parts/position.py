"""Positions that act on scores: relative tables by distance, and untied absolute positions.

Letters: H heads, R distances, D channels of a head's q and k, K positions, N new positions.
A relative part answers `tables(low, high, scale)` for the distances k - q in low..high, and
`content()` with what is added to q beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.ops.relative import Relative, alibi_slopes, t5_bucket
from anyformer.ops.rotary import sinusoid
from anyformer.parts.base import part
from anyformer.parts.init import Fresh
from anyformer.parts.norm import LayerNorm
from anyformer.parts.state import Call


def _distances(low: int, high: int, like: Tensor) -> Tensor:
    return torch.arange(low, high + 1, device=like.device)


@part(S.Buckets)
class Buckets(Fresh):
    """bias[h, Δ] = scale · table[bucket(Δ), h] (arXiv:1910.10683)."""

    def __init__(self, spec: S.Buckets, heads: int, size: int, dim: int):
        super().__init__()
        self.spec = spec
        self.table = nn.Parameter(torch.empty(spec.count, heads))

    def fresh(self, std: float) -> None:
        """A small random bias."""
        nn.init.normal_(self.table, std=std)

    def tables(self, low: int, high: int, scale: float) -> Relative:
        """A bias; beyond max_distance it stays the same."""
        s = self.spec
        low, high = max(low, -s.max_distance), min(high, s.max_distance if s.bidirectional else 0)
        distance = _distances(low, high, self.table)
        bucket = t5_bucket(distance, s.count, s.max_distance, s.bidirectional)
        return Relative(low, high, bias=self.table.index_select(0, bucket).T * s.scale)  # (H, R)

    def content(self) -> Tensor | None:
        """Nothing is added to q."""
        return None


@part(S.ALiBi)
class ALiBi(Fresh):
    """s[q, k] -= slopes[h] · |k - q| (arXiv:2108.12409)."""

    slopes: Tensor

    def __init__(self, spec: S.ALiBi, heads: int, size: int, dim: int):
        super().__init__()
        self.heads = heads
        if spec.learned:
            self.slopes = nn.Parameter(torch.empty(heads))
        else:
            self.register_buffer("slopes", torch.empty(heads), persistent=False)

    def fresh(self, std: float) -> None:
        """The geometric slopes of the paper."""
        with torch.no_grad():
            self.slopes.copy_(alibi_slopes(self.heads))

    def tables(self, low: int, high: int, scale: float) -> Relative:
        """No table: scores that go on falling."""
        return Relative(0, 0, slope=self.slopes)

    def content(self) -> Tensor | None:
        """Nothing is added to q."""
        return None


@part(S.Shaw)
class Shaw(Fresh):
    """q_i · table[Δ], and k_j · table[Δ] with key_side; one table for all heads (1803.02155)."""

    def __init__(self, spec: S.Shaw, heads: int, size: int, dim: int):
        super().__init__()
        self.spec = spec
        self.table = nn.Parameter(torch.empty(2 * spec.clip + 1, size))

    def fresh(self, std: float) -> None:
        """Small random vectors."""
        nn.init.normal_(self.table, std=std)

    def tables(self, low: int, high: int, scale: float) -> Relative:
        """A query-side table, and the same on the key side where asked."""
        clip = self.spec.clip
        low, high = max(low, -clip), min(high, clip)
        rows = self.table[None, clip + low : clip + high + 1] * scale  # (1, R, D)
        return Relative(low, high, query=rows, key=rows if self.spec.key_side else None)

    def content(self) -> Tensor | None:
        """Nothing is added to q."""
        return None


@part(S.XL)
class XL(Fresh):
    """(q_i + u)·k_j + (q_i + v)·W r[i - j], with r the sinusoids of a distance (1901.02860)."""

    def __init__(self, spec: S.XL, heads: int, size: int, dim: int):
        super().__init__()
        self.spec, self.dim, self.shape = spec, dim, (heads, size)
        self.project = nn.Linear(dim, heads * size, bias=False)
        own = lambda: nn.Parameter(torch.empty(heads, size)) if spec.biases else None
        self.content_bias, self.position_bias = own(), own()  # u and v

    def fresh(self, std: float) -> None:
        """Small random biases."""
        for bias in (self.content_bias, self.position_bias):
            if bias is not None:
                nn.init.normal_(bias, std=std)

    def tables(self, low: int, high: int, scale: float, lent: XLBiases | None = None) -> Relative:
        """q·R and, since u is added to q beforehand, (v - u)·R as a bias; u and v may be lent."""
        if self.spec.clamp is not None:
            low, high = max(low, -self.spec.clamp), min(high, self.spec.clamp)
        weight, owner = self.project.weight, self if self.content_bias is not None else lent
        assert owner is not None and owner.content_bias is not None
        assert owner.position_bias is not None
        waves = sinusoid(-_distances(low, high, weight), self.dim, self.spec.theta)
        rows = self.project(waves.to(weight.dtype))  # (R, H·D)
        rows = rows.unflatten(-1, self.shape).transpose(0, 1) * scale  # (H, R, D)
        apart = owner.position_bias - owner.content_bias
        bias = (rows @ apart[..., None].to(rows.dtype))[..., 0]
        return Relative(low, high, bias=bias, query=rows)

    def content(self) -> Tensor | None:
        """u, (H, D), to be added to q."""
        return self.content_bias


@part(S.XLBiases)
class XLBiases(Fresh):
    """u and v, (H, D), for every XL of the stack that has none (arXiv:1901.02860)."""

    def __init__(self, spec: S.XLBiases, heads: int, size: int, dim: int):
        super().__init__()
        self.content_bias = nn.Parameter(torch.empty(heads, size))  # u
        self.position_bias = nn.Parameter(torch.empty(heads, size))  # v

    def fresh(self, std: float) -> None:
        """Small random biases."""
        nn.init.normal_(self.content_bias, std=std)
        nn.init.normal_(self.position_bias, std=std)

    def content(self) -> Tensor | None:
        """u, (H, D), to be added to q."""
        return self.content_bias


@part(S.XLTable)
class XLTable(Fresh):
    """(q_i + u)·k_j + q_i·table[Δ] + scalars[Δ], with Δ = j - i (attn_type 1 of 1901.02860)."""

    def __init__(self, spec: S.XLTable, heads: int, size: int, dim: int):
        super().__init__()
        self.spec, rows = spec, spec.back + spec.ahead + 1
        self.table = nn.Parameter(torch.empty(rows, heads, size))
        self.scalars = nn.Parameter(torch.empty(rows, heads))
        self.content_bias = nn.Parameter(torch.empty(heads, size))  # u

    def fresh(self, std: float) -> None:
        """All zero: what no distance has asked for stays so."""
        for theta in (self.table, self.scalars, self.content_bias):
            nn.init.zeros_(theta)

    def tables(self, low: int, high: int, scale: float) -> Relative:
        """q·table and, since u is added to q beforehand, scalars - u·table as a bias."""
        back = self.spec.back
        low, high = max(low, -back), min(high, self.spec.ahead)
        rows = self.table[back + low : back + high + 1].transpose(0, 1)  # (H, R, D)
        bias = self.scalars[back + low : back + high + 1].T  # (H, R)
        bias = bias - (rows @ self.content_bias[..., None])[..., 0]
        return Relative(low, high, bias=bias * scale, query=rows * scale)

    def content(self) -> Tensor | None:
        """u, (H, D), to be added to q."""
        return self.content_bias


@part(S.Untied)
class Untied(Fresh):
    """TUPE: channels for q and k whose product is the score between two positions (2006.15595)."""

    def __init__(self, spec: S.Untied, heads: int, size: int, dim: int):
        super().__init__()
        self.spec, self.heads, self.size = spec, heads, size
        self.position = nn.Embedding(spec.length, dim)
        self.norm = LayerNorm(S.LayerNorm(), dim)
        self.q = nn.Linear(dim, heads * size, bias=False)
        self.k = nn.Linear(dim, heads * size, bias=False)
        self.row = nn.Parameter(torch.empty(heads)) if spec.cls else None
        self.column = nn.Parameter(torch.empty(heads)) if spec.cls else None

    def fresh(self, std: float) -> None:
        """Small random scores for the first token."""
        for theta in (self.row, self.column):
            if theta is not None:
                nn.init.normal_(theta, std=std)

    def forward(
        self, positions: Tensor, asking: Tensor, relative: tuple[nn.Module, ...] = ()
    ) -> tuple[Tensor, Tensor]:
        """Channels (…, H, N, P) of asking positions (1 or B, N), and (…, H, K, P) of (1 or B, K).

        The scores of the first token also make up for what `relative` adds to them.
        """
        q = self._split(self.q(self._placed(asking)))
        k = self._split(self.k(self._placed(positions)))
        if self.row is None or self.column is None:
            return q, k
        rows = self.row[None, :, None] - self._bias(relative, positions)  # (…, H, K)
        columns = self.column[None, :, None] - self._bias(relative, -asking)
        return self._first_apart(q, k, (asking == 0, positions == 0), rows, columns)

    def known(self, call: Call) -> tuple[Tensor, Tensor]:
        """The channels of a call; a cache keeps those of all keys, from -1, which is no place."""
        asking, positions = call.newest(call.length), call.positions
        if self.row is not None or not call.keeps:
            return self(positions, asking, call.relative)
        every = lambda: torch.arange(-1, self.spec.length, device=positions.device)[None]
        rows = call.once((self,), lambda: self._split(self.k(self._placed(every()))))[0]
        keys = rows[:, positions.clamp(min=-1) + 1].transpose(0, 1)  # (1 or B, H, K, P)
        return self._split(self.q(self._placed(asking))), keys

    def _split(self, x: Tensor) -> Tensor:
        """(…, N, H·P) -> (…, H, N, P)."""
        return x.unflatten(-1, (self.heads, self.size)).transpose(1, 2)

    def _placed(self, at: Tensor) -> Tensor:
        """The vectors (…, d) of positions; memory tokens stand nowhere."""
        return self.norm(self.position(at.clamp(min=0))) * (at >= 0)[..., None]

    def _bias(self, relative: tuple[nn.Module, ...], distance: Tensor) -> Tensor:
        """What relative parts add at distances (…, K), whoever the query is: (…, H, K)."""
        total = self.norm.weight.new_zeros(1)
        reach = self.spec.length
        for found in tables_of(relative, -reach, reach, 1.0):
            level = found.reach(-reach, reach).level()
            if level is not None:
                at = distance.clamp(-reach, reach) + reach
                total = total + level.to(total.dtype)[:, at].transpose(0, 1)
        return total

    def _first_apart(
        self, q: Tensor, k: Tensor, first: tuple[Tensor, Tensor], rows: Tensor, columns: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Two more channels: the first token's row scores `rows`, its column below `columns`."""
        unscaled = (2 * self.size) ** 0.5
        asks, keys = (at[:, None, :, None] for at in first)  # (…, 1, N or K, 1)
        extra_q = [asks * unscaled, torch.where(asks, 0.0, columns[..., None] * unscaled)]
        extra_k = [rows[..., None], keys]
        grown = lambda x, mask, extra: torch.cat(
            [x * ~mask, *(e.expand(*x.shape[:-1], 1).to(x.dtype) for e in extra)], -1
        )
        return grown(q, asks, extra_q), grown(k, keys, extra_k)


def relative_of(module: nn.Module) -> Buckets | ALiBi | Shaw | XL | XLBiases | XLTable:
    """A module as the relative part that it is."""
    kinds = (Buckets, ALiBi, Shaw, XL, XLBiases, XLTable)
    assert isinstance(module, kinds), type(module).__name__
    return module


def tables_of(parts: Iterable[nn.Module], low: int, high: int, scale: float) -> list[Relative]:
    """The tables of relative parts that have some; one of them may lend u and v to others."""
    known = [relative_of(item) for item in parts]
    lent = next((item for item in known if isinstance(item, XLBiases)), None)
    found: list[Relative] = []
    for item in known:
        if isinstance(item, XL):
            found.append(item.tables(low, high, scale, lent))
        elif not isinstance(item, XLBiases):
            found.append(item.tables(low, high, scale))
    return found


def shifted(q: Tensor, parts: list[nn.Module]) -> Tensor:
    """q (B, H, N, D) with what relative parts add to it before q·k."""
    for item in parts:
        added = relative_of(item).content()
        if added is not None:
            q = q + added[:, None].to(q.dtype)
    return q


def lead_zeros(k: Tensor, lead: int) -> Tensor:
    """Channels (…, H, K, P) with zeros for the persistent keys in front."""
    return F.pad(k, (0, 0, lead, 0)) if lead else k
