"""From tensors to the kernels of rows with bounds: top-k and entmax-1.5."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import Work, start, view
from anyformer.ops.kernels.launch_forward import forward as forward_of
from anyformer.ops.kernels.threshold import threshold as threshold_kernel
from anyformer.ops.kernels.tile import ENTMAX, TOP

PROGRAMS = 528  # that keep a GPU busy, each with a list of its own
LIST = 128  # scores that a row has room for


def bounds(work: Work) -> Tensor:
    """The bound of each row (B, H, Q): of top-k in units of log 2, of entmax τ."""
    q, top = work.q, work.facts.weigh == TOP.value
    size = work.size("threshold" if top else "levels")
    batch, heads, queries, _ = q.shape
    found = q.new_empty(batch, heads, queries, dtype=torch.float32)
    steps = -(-queries // size.m) * batch * heads
    scarce = top and bool(work.keep.numel() or work.facts.lead or work.facts.most >= 3 * size.n)
    programs = min(PROGRAMS, steps)
    rows = programs * size.m if top else 0
    lists = q.new_empty(rows * LIST, dtype=torch.float32)
    counts = q.new_empty(rows * 8, dtype=torch.int32)
    start(
        threshold_kernel, (programs,), size,
        (view(q), view(work.k)), (view(found[..., None]), lists, counts),
        work.extra(), batch, work.site(), work.form(size), LIST, work.facts.lead > 0, scarce,
    )  # fmt: skip
    return found


def forward(work: Work) -> list[Tensor]:
    """out, what the gradient takes in its place or nothing, the level and the bound of each row."""
    bound = bounds(work)
    outs, lse = forward_of(replace(work, bound=bound))
    if work.facts.weigh == ENTMAX.value:
        return [*outs, bound, bound.new_empty(0)]
    return [*outs, work.q.new_empty(0), lse, bound]
