"""From tensors to kernels: forms, grids, and the second, ordered sum of the tables' gradients."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer.ops.kernels.forward import forward as forward_kernel
from anyformer.ops.kernels.keys import keys as keys_kernel
from anyformer.ops.kernels.keys import lead_keys as lead_kernel
from anyformer.ops.kernels.queries import queries as queries_kernel
from anyformer.ops.kernels.tables import tables as tables_kernel
from anyformer.ops.kernels.tile import ENTMAX, LEARNED, LOG2E, Form, Site, View

PROGRAMS = 1024  # that keep a GPU busy: so many shares of the diagonals there are at least


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


class Size(NamedTuple):
    """The tiles of a kernel, queries by keys, and how it is compiled."""

    m: int
    n: int
    warps: int
    stages: int
    registers: int = 0  # of a thread, at most; 0: as the compiler likes
    near: int = 0  # stages where tiles read a bias, which takes room; 0: as many


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
    other: tuple[Tensor, ...] = ()  # the library's part: out and lse, or dq, dk and dv

    def size(self, kernel: str) -> Size:
        """The tiles of a kernel for this head size and type."""
        wide = max(self.q.shape[-1], self.v.shape[-1])
        vectors = self.tables[1].numel() or self.tables[2].numel()
        by_head = (VECTORS if vectors else PLAIN)[kernel]
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
            BD=power(d),
            BE=power(e),
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
        return max(s.m + s.n for s in map(self.size, PLAIN))

    def extra(self) -> tuple[View, ...]:
        """Bias, query, key, keep, bounds, slope and norms; bias and slope in units of log 2."""
        bias, query, key = self.tables
        bias = shifted(bias * LOG2E.value, self.pad) if bias.numel() else bias[:, None, None]
        apart = lambda t: 0 if t.shape[0] == 1 else t.stride(0)
        vectors = [View(t, 0, apart(t) if t.numel() else 0, 1) for t in (query, key)]
        keep = View(self.keep, apart(self.keep) if self.keep.numel() else 0, 0, 1)
        bound = keep if self.bound is None else view(self.bound[..., None])
        slope = keep
        if self.slope is not None and self.slope.numel():
            slope = View(self.slope * LOG2E.value, 0, 1, 1)
        norms = keep if self.norms is None or not self.norms.numel() else view(self.norms)
        return (view(bias.transpose(0, 1)), *vectors, keep, bound, slope, norms)


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
    return {"num_warps": size.warps, "num_stages": size.stages, **limit}


def start(kernel: Any, grid: tuple[int, ...], size: Size, *given: Any) -> None:
    """Launch a kernel on the device of its first tensor."""
    first = given[0] if isinstance(given[0], View) else given[0][0]
    where = first.at.device
    with torch.cuda.device(where) if where.type == "cuda" else nullcontext():
        kernel[grid](*given, **options(size))


def forward(work: Work, into: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
    """out (B, H, Q, E) and the log-sum-exp of each row, (B, H, Q), in units of log 2.

    With entmax's weights also the mean of the values by the roots of the weights. `into` is where
    the output goes, if not to a tensor with tokens before heads.
    """
    rooted = work.facts.weigh == ENTMAX.value
    q, size = work.q, work.size("roots" if rooted else "forward")
    batch, heads, queries, _ = q.shape
    shape = (batch, queries, heads, work.v.shape[-1])
    outs = [q.new_empty(shape).transpose(1, 2) for _ in range(2 if rooted else 1)]
    outs = outs if into is None else [into]
    more = (view(work.other[0]), view(work.other[1][..., None])) if work.other else ()
    lse = q.new_empty(batch, heads, queries, dtype=torch.float32)
    start(
        forward_kernel, (_tiles(queries, size.m), batch * heads), size,
        view(q), view(work.k), view(work.v), (*map(view, outs), *more), view(lse[..., None]),
        work.extra(), work.site(), work.form(size), work.facts.lead > 0,
    )  # fmt: skip
    return outs, lse


def backward(work: Work, out: Tensor, lse: Tensor, grad: Tensor) -> list[Tensor]:
    """The gradients of q, k, v, bias, query, key and slope; empty for one that isn't there."""
    q, k, v = work.q, work.k, work.v
    batch, heads, queries, _ = q.shape
    extra, site, f = work.extra(), work.site(), work.facts
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    sums = Sums(work, lse)
    grads = tuple(view(t) for t in (grad, out)) + tuple(
        view(t[..., None]) for t in (lse, sums.delta, *sums.ends, sums.fall)
    )
    grads += tuple(map(view, work.other))
    size = work.size("queries")
    start(
        queries_kernel, (_tiles(queries, size.m), batch * heads), size,
        view(q), view(k), view(v), grads, view(dq), extra, site, work.form(size), f.lead > 0,
    )  # fmt: skip
    size = work.size("keys")
    made = (view(q), view(k), view(v), grads, view(dk), view(dv))
    groups = batch * k.shape[1]
    if site.keys:
        grid = (_tiles(site.keys, size.n), groups)
        start(keys_kernel, grid, size, *made, extra, site, work.form(size))
    if f.lead:
        grid = (_tiles(f.lead, size.n), groups)
        start(lead_kernel, grid, size, *made, extra, site, work.form(size))
    return [dq, dk, dv, *_tables(work, grads, sums), sums.slope()]


class Sums:
    """Room for what the backward kernels sum row by row."""

    def __init__(self, work: Work, lse: Tensor):
        self.delta = torch.empty_like(lse)
        bias, query, key = (t.numel() > 0 for t in work.tables)
        b, h, n = *lse.shape[:2], work.k.shape[2] - work.facts.lead
        asked = (bias or query, bias or query, key, key)
        there = (work.facts.left, work.facts.right) * 2
        shapes = (lse.shape, lse.shape, (b, h, n), (b, h, n))
        self.ends = [  # by query below and above the ends, by key below and above
            lse.new_empty(shape if a and t else (1, 1, 1))
            for shape, a, t in zip(shapes, asked, there, strict=True)
        ]
        self.work, learned = work, work.facts.slope == LEARNED.value
        self.fall = lse.new_empty(lse.shape if learned else (1, 1, 1))  # by query, for the slope

    def slope(self) -> Tensor:
        """The gradient of the slope, in the end; zeros where none learns."""
        if self.work.facts.slope == LEARNED.value:
            return self.fall.sum((0, 2))
        return self.fall.new_zeros(self.work.q.shape[1] if self.work.facts.slope else 0)


def _tables(work: Work, grads: tuple[View, ...], sums: Sums) -> list[Tensor]:
    """The gradients of bias, query and key."""
    if not any(t.numel() for t in work.tables):
        return [torch.empty_like(t) for t in work.tables]
    size, f = work.size("tables"), work.facts
    form, site, q = work.form(size), work.site(), work.q
    first, count = diagonals(site, form, f)
    heads, long = q.shape[1], size.m + size.n
    steps = q.shape[0] * _tiles(site.queries, size.m)
    shares = max(1, min(steps, -(-PROGRAMS // max(1, count * heads))))
    wide = lambda t: q.new_empty(
        (shares, heads, count * long, t.shape[-1]) if t.numel() else (1, 1, 1, 1),
        dtype=torch.float32,
    )
    bias = q.new_empty((shares, heads, count, long), dtype=torch.float32)
    slabs = [bias, wide(work.tables[1]), wide(work.tables[2])]
    if count:
        start(
            tables_kernel, (count, heads, shares), size,
            (view(q), view(work.k), view(work.v)), grads, tuple(map(view, slabs)), work.extra(),
            first, q.shape[0], site, form,
        )  # fmt: skip
    least = first * size.m - f.start - size.m + 1
    found = []
    for t, slab in zip(work.tables, slabs, strict=True):
        made = (
            torch.zeros(heads, *t.shape[1:], device=t.device) if t.numel() else torch.empty_like(t)
        )
        if t.numel() and count:
            dense = _dense(slab.view(shares, heads, count, long, -1))  # (H, distances, T or 1)
            _inside(made.view(heads, t.shape[1], -1), dense, least - f.low)
        found.append(made)
    _ends(work, sums, found)
    return [_shared(d, t) for d, t in zip(found, work.tables, strict=True)]


def diagonals(site: Site, form: Form, facts: Facts) -> tuple[int, int]:
    """The first diagonal of square tiles that reads rows between the ends, and how many do."""
    tile = form.M
    least, most = site.low, site.high  # distances strictly between are read
    if form.causal:
        most = min(most, 1)
    if form.window:
        least, most = max(least, -facts.width), min(most, facts.width)
    first = (least + site.start - tile + 1) // tile + 1
    last = -(-(most + site.start + tile - 1) // tile) - 1
    first = max(first, 1 - _tiles(site.queries, tile))
    last = min(last, _tiles(site.keys, tile) - 1)
    return first, max(0, last - first + 1)


def _dense(slab: Tensor) -> Tensor:
    """Sums by distance: slab (S, H, C, L, T) of overlapping runs -> (H, (C + 1) · L/2, T)."""
    x = slab.sum(0)
    half = x.shape[2] // 2
    dense = F.pad(x[:, :, :half], (0, 0, 0, 0, 0, 1))
    dense[:, 1:] += x[:, :, half:]
    return dense.flatten(1, 2)


def _inside(made: Tensor, dense: Tensor, shift: int) -> None:
    """Fill the rows of made (H, R, T) between its ends; row 0 of dense is row `shift` of it."""
    low, high = max(1, shift), min(made.shape[1] - 1, shift + dense.shape[1])
    if high > low:
        made[:, low:high] = dense[:, low - shift : high - shift]


def _ends(work: Work, sums: Sums, found: list[Tensor]) -> None:
    """Fill the first and last rows of tables that have distances beyond them."""
    f, (bias, query, key) = work.facts, work.tables
    plain = work.k[:, :, f.lead :]
    for row, there, i in ((0, f.left, 0), (-1, f.right, 1)):
        if not there:
            continue
        by_query, by_key = sums.ends[i], sums.ends[2 + i]
        if bias.numel():
            found[0][:, row] = by_query.sum((0, 2))
        if query.numel():
            found[1][:, row] = _weighted(by_query, work.q)[:, : query.shape[-1]]
        if key.numel():
            found[2][:, row] = _weighted(by_key, plain)[:, : key.shape[-1]]


def _weighted(weights: Tensor, x: Tensor) -> Tensor:
    """The sum of the rows of x (B, G, N, D) by weights (B, H, N) -> (H, D)."""
    grouped = weights.unflatten(1, (x.shape[1], -1)).to(x.dtype)  # (B, G, H / G, N)
    return (grouped @ x).float().sum(0).flatten(0, 1)


def _shared(found: Tensor, like: Tensor) -> Tensor:
    """The gradient in the table's own shape and type."""
    found = found.sum(0, keepdim=True) if like.shape[0] < found.shape[0] else found
    return found.to(like.dtype)


def view(x: Tensor) -> View:
    """A tensor of 4 axes as kernels see it."""
    return View(x, x.stride(0), x.stride(1), x.stride(2))


def _tiles(length: int, tile: int) -> int:
    return -(-length // tile)


def power(size: int) -> int:
    """The least power of two that holds a head, at least 16."""
    return max(16, 1 << (size - 1).bit_length())
