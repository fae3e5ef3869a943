"""From tensors to the kernels of the backward pass, all at once or in strips."""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.ops.kernels import launch_slants, launch_tables
from anyformer.ops.kernels.keys import keys as keys_kernel
from anyformer.ops.kernels.keys import lead_keys as lead_kernel
from anyformer.ops.kernels.launch import Work, start, tiles, view
from anyformer.ops.kernels.launch_slants import Slants, Strip
from anyformer.ops.kernels.launch_tables import Sums
from anyformer.ops.kernels.queries import queries as queries_kernel
from anyformer.ops.kernels.tile import View

Views = tuple[View, ...]


def backward(work: Work, out: Tensor, lse: Tensor, grad: Tensor) -> list[Tensor]:
    """The gradients of q, k, v, bias, query, key and slope; empty for one that isn't there."""
    made = [torch.empty_like(x) for x in (work.q, work.k, work.v)]
    sums = Sums(work, lse)
    grads = tuple(view(t) for t in (grad, out)) + tuple(
        view(t[..., None]) for t in (lse, sums.delta, *sums.ends, sums.fall)
    )
    grads += tuple(map(view, work.other))
    slants, extra = Slants(work) if launch_slants.fit(work) else None, work.extra()
    all = Strip((0, work.q.shape[0]), (0, work.k.shape[1]))
    for strip in [all] if slants is None else slants.strips():
        _strip(work, (grads, extra), made, slants, strip)
        if slants is not None:
            slants.sum(strip, made[0], made[1])
    return [*made, *launch_tables.gradients(work, grads, sums, slants), sums.slope()]


def _strip(
    work: Work, given: tuple[Views, Views], made: list[Tensor], slants: Slants | None, strip: Strip
) -> None:
    """Some batch rows and key heads."""
    (b, b1), (g, g1) = strip
    site, f = work.site(), work.facts
    h, heads = g * site.group, (g1 - g) * site.group
    by_query, by_key = lambda x: moved(x, b, h), lambda x: moved(x, b, g)
    q, dq = (by_query(view(x)) for x in (work.q, made[0]))
    k, v, dk, dv = (by_key(view(x)) for x in (work.k, work.v, *made[1:]))
    grads, (bias, *rest) = given
    grads = tuple(map(by_query, grads[:10])) + tuple(map(by_key, grads[10:]))
    extra = (moved(bias, 0, h), *map(by_query, rest))
    marks = (grads[0], grads[0], 0, 0) if slants is None else slants.views()
    site, slanted = site._replace(heads=heads), slants is not None
    size = work.size("queries")
    form = work.form(size)._replace(slant=slanted)
    start(
        queries_kernel, (tiles(site.queries, size.m), (b1 - b) * heads), size,
        q, k, v, grads, dq, extra, marks, site, form, f.lead > 0,
    )  # fmt: skip
    size, groups = work.size("keys"), (b1 - b) * (g1 - g)
    form = work.form(size)._replace(slant=slanted)
    if site.keys:
        grid = (tiles(site.keys, size.n), groups)
        start(keys_kernel, grid, size, q, k, v, grads, dk, dv, extra, marks, site, form)
    if f.lead:
        grid = (tiles(f.lead, size.n), groups)
        start(lead_kernel, grid, size, q, k, v, grads, dk, dv, extra, site, form)


def moved(x: View, b: int, h: int) -> View:
    """A view that begins at a batch row and a head; what is there once, or not at all, stays."""
    by = b * x.b + h * x.h
    if not by or x.at.numel() < 2:
        return x
    return x._replace(at=x.at.as_strided((1,), (1,), x.at.storage_offset() + by))
