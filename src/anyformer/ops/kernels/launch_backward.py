"""From tensors to the kernels of the backward pass, all at once or in strips."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from anyformer.ops.kernels import launch_shelves, launch_tables
from anyformer.ops.kernels.keys import keys as keys_kernel
from anyformer.ops.kernels.keys import lead_keys as lead_kernel
from anyformer.ops.kernels.launch import Work, start, table, tiles, view
from anyformer.ops.kernels.launch_room import Strip, everything, fit, leans, moved, strips
from anyformer.ops.kernels.launch_slants import Leans, Slants
from anyformer.ops.kernels.launch_tables import Sums
from anyformer.ops.kernels.queries import queries as queries_kernel
from anyformer.ops.kernels.tile import View

Views = tuple[View, ...]


def backward(
    work: Work, out: Tensor, lse: Tensor, grad: Tensor, into: list[Tensor] | None = None
) -> list[Tensor]:
    """The gradients of q, k, v, bias, query, key and slope; empty for one that isn't there.

    `into` is where those of q, k and v go, where others have those of other rows: then those of
    tables are of float32, to be added to what other rows give.
    """
    if work.facts.shelf:
        return launch_shelves.backward(work, out, lse, grad, into)
    made = into or [torch.empty_like(x) for x in (work.q, work.k, work.v)]
    sums = Sums(work, lse)
    grads = tuple(view(t) for t in (grad, out)) + tuple(
        view(t[..., None]) for t in (lse, sums.delta, *sums.ends, sums.fall)
    )
    grads += tuple(map(view, work.other))
    work = replace(work, lean=leans(work))
    bias, _, key = work.tables
    returned = replace(work, tables=[bias, work.returned(), key])
    slants, leaning = Slants(returned) if fit(work) else None, Leans(work) if work.lean else None
    extra = work.extra()
    for strip in [everything(work)] if slants is None else strips(work):
        more = () if leaning is None else leaning.fill(strip)
        _strip(work, (grads, extra, more), made, slants, strip)
        if slants is not None:
            slants.sum(strip, made)
    found = launch_tables.gradients(work, grads, sums, slants, torch.float32 if into else None)
    return [*made, *found, sums.slope()]


def _strip(
    work: Work,
    given: tuple[Views, Views, tuple],
    made: list[Tensor],
    slants: Slants | None,
    strip: Strip,
) -> None:
    """Some batch rows and key heads."""
    (b, b1), (g, g1) = strip
    site, f = work.site(), work.facts
    h, heads = g * site.group, (g1 - g) * site.group
    by_query, by_key = lambda x: moved(x, b, h), lambda x: moved(x, b, g)
    q, dq = (by_query(view(x)) for x in (work.q, made[0]))
    k, v, dk, dv = (by_key(view(x)) for x in (work.k, work.v, *made[1:]))
    grads, (bias, *rest), leaning = given
    grads = tuple(map(by_query, grads[:10])) + tuple(map(by_key, grads[10:]))
    extra = (moved(bias, 0, h), *map(by_query, rest))
    none = (grads[0], grads[0], 0, 0)
    extra += (*(leaning or none), *(none if slants is None else slants.views(slants.made)))
    extra += (by_query(table(work.returned())),)
    site, slanted = site._replace(heads=heads), slants is not None
    size = work.size("queries")
    form = work.form(size)._replace(slant=slanted)
    start(
        queries_kernel, (tiles(site.queries, size.m), (b1 - b) * heads), size,
        q, k, v, grads, dq, extra, site, form, f.lead > 0,
    )  # fmt: skip
    size, groups = work.size("keys"), (b1 - b) * (g1 - g)
    form = work.form(size)._replace(slant=slanted)
    if site.keys:
        grid = (tiles(site.keys, size.n), groups)
        start(keys_kernel, grid, size, q, k, v, grads, dk, dv, extra, site, form)
    if f.lead:
        grid = (tiles(f.lead, size.n), groups)
        start(lead_kernel, grid, size, q, k, v, grads, dk, dv, extra, site, form)
