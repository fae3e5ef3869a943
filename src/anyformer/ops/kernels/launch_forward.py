"""From tensors to the kernel of the forward pass, all at once or in strips."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from anyformer.ops.kernels import launch_shelves
from anyformer.ops.kernels.forward import forward as forward_kernel
from anyformer.ops.kernels.launch import Work, start, tiles, view
from anyformer.ops.kernels.launch_room import Strip, everything, leans, moved, strips
from anyformer.ops.kernels.launch_slants import Leans
from anyformer.ops.kernels.tile import ENTMAX


def forward(work: Work, into: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
    """out (B, H, Q, E) and the log-sum-exp of each row, (B, H, Q), in units of log 2.

    With entmax's weights also the mean of the values by the roots of the weights. `into` is where
    the output goes, if not to a tensor with tokens before heads.
    """
    if work.facts.shelf:
        return launch_shelves.forward(work, into)
    q, rooted = work.q, work.facts.weigh == ENTMAX.value
    batch, heads, queries, _ = q.shape
    shape = (batch, queries, heads, work.v.shape[-1])
    outs = [q.new_empty(shape).transpose(1, 2) for _ in range(2 if rooted else 1)]
    outs = outs if into is None else [into]
    lse = q.new_empty(batch, heads, queries, dtype=torch.float32)
    work = replace(work, lean=leans(work))
    extra, leaning = work.extra(), Leans(work) if work.lean else None
    for strip in strips(work) if work.lean else [everything(work)]:
        more = () if leaning is None else leaning.fill(strip)
        _strip(work, outs, lse, (extra, more), strip)
    return outs, lse


def _strip(
    work: Work, outs: list[Tensor], lse: Tensor, given: tuple[tuple, tuple], strip: Strip
) -> None:
    """Some batch rows and key heads."""
    size = work.size("roots" if len(outs) == 2 else "forward")
    (b, b1), (g, _) = strip
    h, h1 = strip.heads(work.q.shape[1] // work.k.shape[1])
    by_query, by_key = lambda x: moved(x, b, h), lambda x: moved(x, b, g)
    other = work.others()
    results = tuple(map(by_query, (*map(view, outs), *other)))
    (bias, *rest), leaning = given
    extra = (moved(bias, 0, h), *map(by_query, rest), *leaning)
    start(
        forward_kernel, (tiles(work.q.shape[2], size.m), (b1 - b) * (h1 - h)), size,
        by_query(view(work.q)), by_key(view(work.k)), by_key(view(work.v)), results,
        by_query(view(lse[..., None])), extra, work.site()._replace(heads=h1 - h),
        work.form(size), work.facts.lead > 0,
    )  # fmt: skip
