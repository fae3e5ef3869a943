"""From tensors to kernels: sizes of tiles, and what a kernel is compiled for."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer.ops.kernels.tile import LEARNED, LOG2E, Form, Site, View


class Facts(NamedTuple):
    """Numbers of a call, as integers: they travel through torch as a list."""

    lead: int
    start: int
    causal: int
    width: int  # 0: no window
    low: int
    high: int
    left: int  # whether there are distances below low, and above high
    right: int
    slope: int = 0  # this and the next as in tile.Form
    weigh: int = 0
    most: int = 0  # of top-k
    shelf: int = 0  # whether vectors in tables pass by shared memory, as in launch_shelves


class Size(NamedTuple):
    """The tiles of a kernel, queries by keys, and how it is compiled."""

    m: int
    n: int
    warps: int
    stages: int
    registers: int = 0  # of a thread, at most; 0: as the compiler likes
    near: int = 0  # stages where tiles read a bias, which takes room; 0: as many
    early: bool = False  # it starts while the kernel before still runs, and waits for its end


# By kernel, then by the widest head that they serve. A group of four warps multiplies 64 rows:
# queries, and keys in their own kernel; eight on 64 would do the same twice (benchmarks/NOTES.md).
# Registers are limited where that lets one more program onto a processor and nothing is spilled.
PLAIN = {
    "forward": {64: Size(128, 64, 8, 3, 128, 2), 128: Size(128, 64, 8, 2), 256: Size(64, 32, 4, 2)},
    "queries": {64: Size(64, 64, 4, 3, 168, 2), 128: Size(128, 64, 8, 2), 256: Size(32, 32, 4, 2)},
    "keys": {64: Size(32, 64, 4, 3, 168), 128: Size(32, 128, 8, 2), 256: Size(32, 32, 4, 2)},
    "tables": {64: Size(64, 64, 4, 3), 128: Size(64, 64, 8, 2), 256: Size(32, 32, 4, 2)},
    "roots": {64: Size(64, 64, 4, 3, 168), 128: Size(128, 64, 8, 2), 256: Size(32, 32, 4, 2)},
    "threshold": {128: Size(64, 128, 8, 3), 256: Size(64, 64, 4, 2)},
    "levels": {128: Size(64, 64, 4, 3), 256: Size(64, 32, 4, 2)},  # the thresholds of entmax
}
VECTORS = {  # in the tables; the sizes of "tables" are square in both
    "forward": {64: Size(64, 32, 4, 2), 256: Size(64, 32, 4, 1)},
    "queries": {64: Size(64, 64, 4, 1), 256: Size(64, 32, 4, 1)},
    "keys": {256: Size(32, 64, 4, 1)},
    "tables": {128: Size(64, 64, 4, 1), 256: Size(32, 32, 8, 1)},
    "roots": {128: Size(64, 32, 4, 1), 256: Size(32, 32, 4, 1)},
    "threshold": {128: Size(64, 64, 8, 1), 256: Size(32, 32, 4, 1)},
    "levels": {128: Size(64, 32, 4, 1), 256: Size(32, 32, 4, 1)},
}
LEANING = {  # vectors, what they bring being read from buffers
    "forward": {64: Size(64, 64, 4, 3), 128: Size(64, 64, 4, 2), 256: Size(64, 32, 4, 1)},
    "queries": {64: Size(64, 64, 4, 2), 256: Size(64, 32, 4, 1)},
    "keys": {256: Size(32, 64, 4, 1)},  # with two stages Triton 3.6 makes wrong code of it
}
EXACT = (Size(32, 32, 8, 1), Size(16, 16, 8, 1))  # of float32, plain and with more in registers


@dataclass(frozen=True, eq=False)
class Work:
    """One call: q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E), its tables, and keys to keep."""

    q: Tensor
    k: Tensor
    v: Tensor
    tables: list[Tensor]  # bias (H, R) float32, query and key (H or 1, R, T); empty: none
    keep: Tensor  # (B or 1, K - lead) int8; empty: all
    scale: float
    facts: Facts
    bound: Tensor | None = None  # (B, H, Q) float32, where scores below weigh nothing
    slope: Tensor | None = None  # (H,) float32, where facts say that there is one
    norms: Tensor | None = None  # (B, H, 2, C), of launch_norms; none or empty: all keys count
    other: tuple[Tensor, ...] = ()  # the library's: out, lse and the whole's; or dq, dk and dv
    back: Tensor | None = None  # what gradients of queries take in place of the query table
    lean: bool = False  # what vectors in tables bring to scores lies in buffers, of launch_slants

    def size(self, kernel: str) -> Size:
        """The tiles of a kernel for this head size and type."""
        wide = max(self.q.shape[-1], self.v.shape[-1])
        vectors = self.tables[1].numel() or self.tables[2].numel()
        by_head = (LEANING if self.lean else VECTORS if vectors else PLAIN)[kernel]
        found = by_head[next(most for most in by_head if wide <= most)]
        if self.q.dtype != torch.float32:
            summed = kernel == "queries" and self.facts.slope == LEARNED.value
            return found._replace(registers=0) if summed else found  # its sums need more
        if kernel == "threshold":  # whose columns are strips of keys, better many
            return Size(max(16, found.m // 2), max(16, found.n // 2), found.warps, 1)
        return EXACT[1 if vectors or wide > 128 else 0]

    def form(self, size: Size) -> Form:
        """What a kernel with such tiles is compiled for."""
        f, (bias, query, key) = self.facts, [t.numel() > 0 for t in self.tables]
        wide = self.tables[1].shape[-1] if query else self.tables[2].shape[-1] if key else 0
        d, e = self.q.shape[-1], self.v.shape[-1]
        return Form(
            M=size.m,
            N=size.n,
            D=d,
            E=e,
            T=wide,
            BD=channels(d),
            BE=channels(e),
            causal=bool(f.causal),
            window=f.width > 0,
            pads=self.keep.numel() > 0,
            even=(self.k.shape[2] - f.lead) % size.n == 0,
            bias=bias,
            query=query,
            key=key,
            left=bool(f.left),
            right=bool(f.right),
            slope=f.slope,
            parts=self.norms.shape[-1] if self.norms is not None and self.norms.numel() else 0,
            weigh=f.weigh,
            stages=(size.stages, size.near if bias and size.near else size.stages, size.stages),
            other=len(self.other) > 0,
            lean=self.lean,
        )

    def site(self) -> Site:
        """The numbers that kernels read."""
        f, heads = self.facts, self.q.shape[1]
        return Site(
            queries=self.q.shape[2],
            keys=self.k.shape[2] - f.lead,
            lead=f.lead,
            start=f.start,
            width=f.width,
            low=f.low,
            high=f.high,
            heads=heads,
            group=heads // self.k.shape[1],
            pad=self.pad,
            scale=self.scale,
            most=f.most,
        )

    @property
    def pad(self) -> int:
        """How far a tile reaches beyond the ends of the bias."""
        return max(s.m + s.n for s in map(self.size, LEANING if self.lean else PLAIN))

    def returned(self) -> Tensor:
        """The table that gradients of queries take."""
        return self.tables[1] if self.back is None else self.back

    def extra(self) -> tuple[View, ...]:
        """Bias, query, key, keep, bounds, slope and norms; bias and slope in units of log 2."""
        bias, query, key = self.tables
        bias = shifted(bias * LOG2E.value, self.pad) if bias.numel() else bias[:, None, None]
        alone = self.keep.shape[0] == 1 or not self.keep.numel()
        keep = View(self.keep, 0 if alone else self.keep.stride(0), 0, 1)
        bound = keep if self.bound is None else view(self.bound[..., None])
        slope = keep
        if self.slope is not None and self.slope.numel():
            slope = View(self.slope * LOG2E.value, 0, 1, 1)
        norms = keep if self.norms is None or not self.norms.numel() else view(self.norms)
        vectors = table(query), table(key)
        return (view(bias.transpose(0, 1)), *vectors, keep, bound, slope, norms)

    def others(self) -> tuple[View, ...]:
        """The library's output and log-sum-exp, and room for that of the whole, for kernels."""
        if not self.other:
            return ()
        out, *by_row = self.other
        return view(out), *(view(x[..., None]) for x in by_row)


def shifted(bias: Tensor, pad: int) -> Tensor:
    """bias (H, R), longer by pad on both sides, as (H, 2, 4, W): there and back, from 0 to 3 on."""
    long = bias.shape[1] + 2 * pad
    wide = long + -long % 16  # so that all begin where a GPU reads best
    ends = (pad, pad + wide + 3 - long)
    there = F.pad(bias[None], ends, mode="replicate")[0]
    return torch.stack([there, there.flip(1)], 1).unfold(2, wide, 1).contiguous()


def options(size: Size) -> dict[str, int]:
    """How a kernel of such tiles is compiled, in Triton's words."""
    limit = {"maxnreg": size.registers} if size.registers else {}
    soon = {"launch_pdl": True} if size.early else {}
    return {"num_warps": size.warps, "num_stages": size.stages, **limit, **soon}


def start(kernel: Any, grid: tuple[int, ...], size: Size, *given: Any) -> None:
    """Launch a kernel on the device of its first tensor."""
    first = given[0] if isinstance(given[0], View) else given[0][0]
    where = first.at.device
    with torch.cuda.device(where) if where.type == "cuda" else nullcontext():
        kernel[grid](*given, **options(size))


def view(x: Tensor) -> View:
    """A tensor of 4 axes as kernels see it."""
    return View(x, x.stride(0), x.stride(1), x.stride(2))


def table(t: Tensor) -> View:
    """A table (H or 1, R, T), or none, as kernels see it."""
    return View(t, 0, 0 if t.shape[0] < 2 else t.stride(0), 1)


def tiles(length: int, tile: int) -> int:
    """How many tiles hold so many rows."""
    return -(-length // tile)


def power(size: int) -> int:
    """The least power of two that holds a head, at least 16."""
    return max(16, 1 << (size - 1).bit_length())


def channels(size: int) -> int:
    """The channels of a tile for a head: sums of 16 columns come out wrong by Triton 3.6."""
    return max(32, power(size))
