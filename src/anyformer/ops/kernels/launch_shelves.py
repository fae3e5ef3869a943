"""From tensors to the kernels with shelves, and from their sums to gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.ops.kernels import once as backward_kernels
from anyformer.ops.kernels.launch import Size, Work, start, tiles, view
from anyformer.ops.kernels.launch_shelf import prepare
from anyformer.ops.kernels.shelf import LONG
from anyformer.ops.kernels.shelved import PARTS, THERE, Given, shelved
from anyformer.ops.kernels.tile import Form, Site, View

FORWARD = Size(64, 64, 4, 2)  # four warps have 16 of 64 rows each: then a shelf is theirs alone
BACKWARD = Size(64, 64, 4, 1)
SHARES, ROOM = 4, 64 << 20  # copies of a table's sums, and bytes: programs add to one in turn


def forward(work: Work, into: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
    """As launch_forward.forward."""
    q, size = work.q, FORWARD
    batch, heads, queries, _ = q.shape
    out = q.new_empty(batch, queries, heads, work.v.shape[-1]).transpose(1, 2)
    out = out if into is None else into
    lse = q.new_empty(batch, heads, queries, dtype=torch.float32)
    form, site = _compiled(work, size)
    other = (view(work.other[0]), view(work.other[1][..., None])) if work.other else ()
    start(
        shelved, (tiles(queries, size.m), batch * heads), size,
        view(q), view(work.k), view(work.v), (view(out), *other), view(lse[..., None]),
        _given(work, site.pad), site, form,
    )  # fmt: skip
    return [out], lse


def backward(work: Work, out: Tensor, lse: Tensor, grad: Tensor) -> list[Tensor]:
    """The gradients of q, k, v, bias, query, key and slope; empty for one that isn't there."""
    q, size = work.q, BACKWARD
    form, site = _compiled(work, size)
    dq, dk, dv = (torch.empty_like(x) for x in (q, work.k, work.v))
    total, delta = q.new_empty(q.shape, dtype=torch.float32), torch.empty_like(lse)
    grads = (view(grad), view(out), view(lse[..., None]), view(delta[..., None]))
    by_query = tiles(site.queries, size.m), q.shape[0] * q.shape[1]
    start(backward_kernels.begin, by_query, size, grads, view(total), site, form)
    slabs = _slabs(work, site.pad)
    sums = view(total), tuple(map(view, slabs)), len(slabs[0])
    other = tuple(map(view, work.other)) or (view(grad),) * 3
    start(
        backward_kernels.once, (tiles(site.keys, size.n), q.shape[0] * work.k.shape[1]), size,
        view(q), (view(work.k), view(work.v)), (*grads, *other[1:]), (view(dk), view(dv)),
        sums, _given(work, site.pad), site, form,
    )  # fmt: skip
    start(backward_kernels.finish, by_query, size, view(total), other[0], view(dq), site, form)
    found = [_folded(slab, t, site.pad) for slab, t in zip(slabs, work.tables, strict=True)]
    return [dq, dk, dv, *found, q.new_empty(0, dtype=torch.float32)]


def _compiled(work: Work, size: Size) -> tuple[Form, Site]:
    """What a kernel is compiled for, and its numbers: here tables are longer by a tile's reach."""
    return work.form(size), work.site()._replace(pad=size.m + size.n)


def _given(work: Work, pad: int) -> Given:
    """Tables and bias in units of 1 / scale, longer by pad on both sides.

    Softmax doesn't see what a whole row gains, so a bias has its largest number at 0, where 16 bits
    are finest; unless the library has a part of the rows, which knows nothing of it.
    """
    bias, *vectors = (t * (1 / work.scale) if t.numel() else t for t in work.tables)
    if bias.numel() and not work.other:
        bias = bias - bias.amax(1, keepdim=True)
    bias, query, key = (_longer(x, pad) for x in (_parts(bias, work.q.dtype), *vectors))
    keep = View(work.keep, work.keep.stride(0) if len(work.keep) > 1 else 0, 0, 1)
    if work.q.is_cuda:
        prepare()
        return Given(bias, query, key, keep, work.q)
    return Given(bias, query, key, keep, torch.zeros(2 * LONG.value))  # the interpreter's


def _longer(x: Tensor, pad: int) -> View:
    """A table (H or 1, R, T) with its ends repeated."""
    if x.numel():
        x = torch.cat([x[:, :1].expand(-1, pad, -1), x, x[:, -1:].expand(-1, pad, -1)], 1)
    return View(x, 0, x.stride(0) if len(x) > 1 else 0, x.shape[-1])


def _parts(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """A bias (H, R) of float32 as numbers of 16 bits that add up to it, (H, R, PARTS)."""
    made = bias.new_zeros(*bias.shape, PARTS.value, dtype=dtype)
    for i in range(THERE.value if bias.numel() else 0):
        made[..., i] = bias
        bias = bias - made[..., i]
    return made


def _slabs(work: Work, pad: int) -> list[Tensor]:
    """Sums by distance of each table (S, H, pad + rows + pad, T), all 0."""
    heads = work.q.shape[1]
    wide = [1, *(t.shape[-1] for t in work.tables[1:])]
    rows = [t.shape[1] + 2 * pad if t.numel() else 1 for t in work.tables]
    bytes = max(4 * heads * n * w for n, w in zip(rows, wide, strict=True))
    shares = max(1, min(SHARES, ROOM // bytes))
    zeros = lambda n, w: work.q.new_zeros(shares, heads, n, w, dtype=torch.float32)
    return [zeros(n, w) for n, w in zip(rows, wide, strict=True)]


def _folded(slab: Tensor, table: Tensor, pad: int) -> Tensor:
    """The gradient of a table: rows beyond its ends belong to those."""
    if not table.numel():
        return torch.empty_like(table)
    x, last = slab.sum(0), pad + table.shape[1] - 1
    found = x[:, pad : last + 1].clone()
    found[:, 0] += x[:, :pad].sum(1)
    found[:, -1] += x[:, last + 1 :].sum(1)
    if table.shape[0] < len(found):
        found = found.sum(0, keepdim=True)
    return found.view(table.shape).to(table.dtype)
