"""The gradients of tables: what backward kernels sum by row, and the ordered sums by distance."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer.ops.kernels.launch import Facts, Work, start, tiles, view
from anyformer.ops.kernels.launch_slants import Slants
from anyformer.ops.kernels.tables import tables as tables_kernel
from anyformer.ops.kernels.tile import LEARNED, Form, Site, View

PROGRAMS = 1024  # that keep a GPU busy: so many shares of the diagonals there are at least


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


def gradients(
    work: Work,
    grads: tuple[View, ...],
    sums: Sums,
    slants: Slants | None,
    type: torch.dtype | None = None,
) -> list[Tensor]:
    """The gradients of bias, query and key; with slants, what those have summed up.

    In a type, or else each in that of its table.
    """
    if not any(t.numel() for t in work.tables):
        return [torch.empty_like(t) for t in work.tables]
    heads = work.q.shape[1]
    found = [
        torch.zeros(heads, *t.shape[1:], device=t.device) if t.numel() else torch.empty_like(t)
        for t in work.tables
    ]
    if slants is None:
        _by_diagonals(work, grads, found)
    else:
        slants.found(found)
    _ends(work, sums, found)
    return [_shared(d, t).to(type or t.dtype) for d, t in zip(found, work.tables, strict=True)]


def _by_diagonals(work: Work, grads: tuple[View, ...], found: list[Tensor]) -> None:
    """Fill the rows between the ends, of the gradients of scores along diagonals of tiles."""
    size, f = work.size("tables"), work.facts
    form, site, q = work.form(size), work.site(), work.q
    first, count = diagonals(site, form, f)
    heads, long = q.shape[1], size.m + size.n
    if not count:
        return
    steps = q.shape[0] * tiles(site.queries, size.m)
    shares = max(1, min(steps, -(-PROGRAMS // (count * heads))))
    wide = lambda t: q.new_empty(
        (shares, heads, count * long, t.shape[-1]) if t.numel() else (1, 1, 1, 1),
        dtype=torch.float32,
    )
    bias = q.new_empty((shares, heads, count, long), dtype=torch.float32)
    slabs = [bias, wide(work.tables[1]), wide(work.tables[2])]
    start(
        tables_kernel, (count, heads, shares), size,
        (view(q), view(work.k), view(work.v)), grads, tuple(map(view, slabs)), work.extra(),
        first, q.shape[0], site, form,
    )  # fmt: skip
    least = first * size.m - f.start - size.m + 1
    for t, slab, made in zip(work.tables, slabs, found, strict=True):
        if t.numel():
            dense = _dense(slab.view(shares, heads, count, long, -1))  # (H, distances, T or 1)
            _inside(made.view(heads, t.shape[1], -1), dense, least - f.low)


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
    first = max(first, 1 - tiles(site.queries, tile))
    last = min(last, tiles(site.keys, tile) - 1)
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
    """The gradient in the table's own shape."""
    return found.sum(0, keepdim=True) if like.shape[0] < found.shape[0] else found
