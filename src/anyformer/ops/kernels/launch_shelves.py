"""From tensors to the kernels with shelves, and from their sums to gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.ops.kernels import launch_onepass
from anyformer.ops.kernels.ends import CHUNK
from anyformer.ops.kernels.launch import Size, Work, start, tiles, view
from anyformer.ops.kernels.launch_ends import fold, in_parts, lengthened, sums_of
from anyformer.ops.kernels.launch_shelf import prepare
from anyformer.ops.kernels.shelf import NUMBERS
from anyformer.ops.kernels.shelved import Given, shelved
from anyformer.ops.kernels.shelved_keys import shelved_keys
from anyformer.ops.kernels.shelved_queries import TOLD, shelved_queries
from anyformer.ops.kernels.tile import Form, Site, View

# By kernel, then by how many tables of vectors there are; those backwards have as many queries.
# Four warps have 16 of 64 rows each: those that they lay on a shelf, they move. Two programs fit on
# a processor, and three of the first; loads are asked for ahead where that leaves room for so many.
SIZES = {
    "shelved": {1: Size(64, 64, 4, 2, 168), 2: Size(64, 64, 4, 2)},
    "shelved_queries": {1: Size(64, 64, 4, 2), 2: Size(64, 64, 4, 1)},
    "shelved_keys": {1: Size(64, 64, 4, 2), 2: Size(64, 64, 4, 1)},
}
ROOM = 64 << 20  # bytes of sums by row of a table
ALIGNED = 16  # what Triton asks of addresses and of strides


def forward(work: Work, into: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
    """As launch_forward.forward."""
    q, size = work.q, _size(work, "shelved")
    batch, heads, queries, _ = q.shape
    out = q.new_empty(batch, queries, heads, work.v.shape[-1]).transpose(1, 2)
    out = out if into is None else into
    lse = q.new_empty(batch, heads, queries, dtype=torch.float32)
    form, site = _compiled(work, size)
    given, other = _given(work, site.pad), work.others()
    if launch_onepass.ONWARD and launch_onepass.fits(work, out):
        launch_onepass.forward(work, out, lse, (given.bias, given.query), site.pad)
        return [out], lse
    start(
        shelved, (tiles(queries, size.m), batch * heads), size,
        view(q), view(work.k), view(work.v), (view(out), *other), view(lse[..., None]),
        given, site, form,
    )  # fmt: skip
    return [out], lse


def backward(
    work: Work, out: Tensor, lse: Tensor, grad: Tensor, into: list[Tensor] | None = None
) -> list[Tensor]:
    """As launch_backward.backward."""
    q, size = work.q, _size(work, "shelved_queries")
    form, site = _compiled(work, size)
    made = into or [torch.empty_like(x) for x in (q, work.k, work.v)]
    slabs = sums_of(work.tables, q.shape[1], site.pad, form.BD, ROOM)
    given = _given(work, site.pad)
    if launch_onepass.fits(work, out, grad):
        whole = launch_onepass.Made(*made, *slabs[:2])
        tables = given.bias, given.query
        launch_onepass.gradients(work, (grad, out, lse), whole, tables, site.pad)
    else:
        _two_passes(work, (grad, out, lse), made, slabs, given)
    type = torch.float32 if into else None
    found = [fold(slab, t, site.pad, type) for slab, t in zip(slabs, work.tables, strict=True)]
    return [*made, *found, q.new_empty(0, dtype=torch.float32)]


def _two_passes(
    work: Work,
    have: tuple[Tensor, Tensor, Tensor],
    made: list[Tensor],
    slabs: list[Tensor],
    given: Given,
) -> None:
    """The kernels of queries and of keys; have: grad, out and lse, made: dq, dk and dv."""
    q, size = work.q, _size(work, "shelved_queries")
    form, site = _compiled(work, size)
    (grad, out, lse), (dq, dk, dv) = have, map(view, made)
    other = tuple(map(view, work.other)) or (view(grad),) * 3
    by_query = tiles(site.queries, size.m)
    told = q.new_empty(*q.shape[:2], by_query * size.m, TOLD.value)
    grads = (view(grad), view(out), view(lse[..., None]), view(told))
    pair = view(work.k), view(work.v)
    bias, query, key = map(view, slabs)
    start(
        shelved_queries, (by_query, q.shape[0] * q.shape[1]), size,
        view(q), pair, (*grads, other[0]), dq,
        ((bias, query), len(slabs[0])), given, site, form,
    )  # fmt: skip
    size = _size(work, "shelved_keys")
    form, site = _compiled(work, size)
    start(
        shelved_keys, (tiles(site.keys, size.n), q.shape[0] * work.k.shape[1]), size,
        view(q), pair, (*grads, *other[1:]), (dk, dv),
        (key, len(slabs[2])), given, site, form,
    )  # fmt: skip


def _size(work: Work, kernel: str) -> Size:
    """The tiles of a kernel for the tables that there are.

    Two tables are asked for ahead where keys and values are, too: else Triton would put what is
    done with them into another order than shelves need.
    """
    count, sizes = sum(t.numel() > 0 for t in work.tables[1:]), SIZES[kernel]
    found = sizes[next(most for most in sizes if count <= most)]
    read = work.k, work.v, *work.tables[1:]
    ahead = count < 2 or all(t.shape[-1] == found.n and _aligned(t) for t in read)
    return found if ahead else found._replace(stages=1)


def _aligned(x: Tensor) -> bool:
    """Whether Triton knows that rows begin where sixteen numbers do, and so asks for them ahead."""
    return x.data_ptr() % ALIGNED == 0 and all(n % ALIGNED == 0 for n in x.stride()[:-1])


def _compiled(work: Work, size: Size) -> tuple[Form, Site]:
    """What a kernel is compiled for, and its numbers: here tables are longer by a tile's reach.

    And by so many rows that those of a tile begin a chunk of sums. Tiles of values are as wide as
    those of keys: where they weren't, ptxas 12.8 lost where values lie (`benchmarks compiled`).
    """
    form = work.form(size)
    wide = max(form.BD, form.BE)
    form = form._replace(full=work.q.shape[2] % size.m == 0, BD=wide, BE=wide)
    reach, first = size.m + size.n, work.facts.low + work.facts.start - 1
    return form, work.site()._replace(pad=reach + (first - reach) % CHUNK.value)


def _given(work: Work, pad: int) -> Given:
    """Tables and bias in units of 1 / scale, longer by pad on both sides.

    Softmax doesn't see what a whole row gains, so a bias has its largest number at 0, where 16 bits
    are finest; unless the library has a part of the rows, which knows nothing of it.
    """
    (bias, *vectors), unit = work.tables, 1 / work.scale
    top = bias.amax(1) if bias.numel() and not work.other else None
    query, key = (lengthened(x, pad, unit) for x in vectors)
    back = query if work.back is None else lengthened(work.back, pad, unit)
    keep = View(work.keep, work.keep.stride(0) if len(work.keep) > 1 else 0, 0, 1)
    scratch = work.q if work.q.is_cuda else torch.zeros(2 * NUMBERS.value)  # the interpreter's
    if work.q.is_cuda:
        prepare()
    bias = lengthened(bias[..., None], pad, unit, top)
    return Given(bias, in_parts(bias, work.q.dtype), query, back, key, keep, scratch)
