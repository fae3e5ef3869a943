"""Relative terms, windows, padding and persistent keys in fused Triton kernels, linear in memory.

Tiles of scores read the tables by distance; where a whole tile lies beyond the end of a table, it
is a plain one. No kernel adds to what another program writes, so results never depend on order:
they are the same each time, whether torch is asked to be deterministic or not.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from anyformer.ops.mask import Causal, Padding, Window, parts
from anyformer.ops.plan import Plan

WIDEST = 256  # channels of a head that fit a tile
INSTALLED = importlib.util.find_spec("triton") is not None  # asked once, not while compiling
PART, MOST_PARTS = 256, 64  # rows whose norms are one number, unless there are more parts
TYPES = (torch.float32, torch.bfloat16, torch.float16)


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why the kernels can't run this plan here, or None."""
    if not INSTALLED:
        return "needs Triton, which isn't installed"
    if not (q.is_cuda or interpreted()):
        return "runs on a GPU, or with TRITON_INTERPRET=1"
    if q.dtype not in TYPES or not q.dtype == k.dtype == v.dtype:
        return "needs q, k and v of one type: float32, bfloat16 or float16"
    if isinstance(plan.start, Tensor):
        return "needs queries whose position the host knows"
    if max(q.shape[-1], v.shape[-1]) > WIDEST:
        return f"has no tiles for heads wider than {WIDEST}"
    rest = [m for m in parts(plan.mask) if not isinstance(m, (Causal, Window, Padding))]
    return f"has no mask {type(rest[0]).__name__}" if rest else None


def interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on any device."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def tiles(q: Tensor, k: Tensor, v: Tensor, plan: Plan, shelf: bool = False) -> Tensor:
    """q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E) -> (B, H, Q, E).

    With a shelf, what vectors in tables bring passes by shared memory, as in ops.shelves.
    """
    facts, given = prepared(q, k, v, plan, shelf)
    facts = [*facts, 0, 0, int(shelf)]
    return _Tiles.apply(plan.scale, facts, *given)  # type: ignore[no-any-return]


def prepared(
    q: Tensor, k: Tensor, v: Tensor, plan: Plan, shelf: bool = False
) -> tuple[list[int], list[Tensor]]:
    """The numbers of a call (kernels.launch.Facts), and what their kernels are given."""
    if k.shape[1] != v.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    facts, tables = laid(q, k, plan, shelf)
    return facts, [q, k, v, *tables, _keep(plan, k.shape[2] - plan.lead, q)]


def laid(q: Tensor, k: Tensor, plan: Plan, shelf: bool = False) -> tuple[list[int], list[Tensor]]:
    """The numbers of a call (kernels.launch.Facts), and bias, query, key and slope; empty for none.

    An end of a table beyond which no distance lies moves one row outwards, where nothing reads it.
    Other ends leave the distance 0 between them: tiles beyond one lie on one side of the queries.
    Ends at multiples of 16 move as well, there and back the same rows: on a GPU (Triton 3.6) the
    sums at an end of 0 came out without those of the tile that it crosses. Shelves have longer
    tables of their own, so that ends stay where they are, or where the last distance lies.
    """
    masks, start = parts(plan.mask), plan.start
    assert isinstance(start, int)
    causal = any(isinstance(m, Causal) for m in masks)
    widths = [m.width for m in masks if isinstance(m, Window)]
    width = min(widths) if widths else 0
    least, most = 1 - q.shape[2] - start, 0 if causal else k.shape[2] - plan.lead - 1 - start
    if width:
        least, most = max(least, 1 - width), min(most, width - 1)
    empty = lambda *shape: torch.empty(0, *shape, device=q.device)  # apart: one is passed once
    terms = plan.relative
    if terms is None:
        none = [empty(1), empty(1, 1), empty(1, 1), empty()]
        past = int(causal and not width)  # tiles all below 0, in which no key is hidden
        return [plan.lead, start, int(causal), width, 0, 1, past, 0, 0], none
    low, high = min(terms.low, 0), max(terms.high, 0)
    left, right = low > least, high < most
    if shelf:
        low, high = max(low, min(least, 0) - 1), min(high, max(most, 0) + 1)
    else:
        low = low - (low % 16 == 0) if left else min(least, 0) - 1
        high = max(high + (high % 16 == 0) if right else most + 1, low + 1)
    near, slope = terms.reach(low, high), terms.slope
    bias = empty(1) if near.bias is None else near.bias.float()
    wide = lambda t: empty(1, 1) if t is None else t.to(q.dtype).contiguous()
    found = [bias.contiguous(), wide(near.query), wide(near.key)]
    found.append(empty() if slope is None else slope.float().contiguous())
    kind = 0 if slope is None else 2 if slope.requires_grad else 1  # as kernels.tile.Form has it
    facts = [plan.lead, start, causal, width, low, high, left, right, kind]
    return [int(x) for x in facts], found


def _keep(plan: Plan, keys: int, q: Tensor) -> Tensor:
    """Which keys all padding masks keep, (B or 1, K) int8; empty where there is none."""
    pads = [m.keep[:, :keys] for m in parts(plan.mask) if isinstance(m, Padding)]
    if not pads:
        return torch.empty(0, 1, dtype=torch.int8, device=q.device)
    return functools.reduce(torch.logical_and, pads).to(torch.int8).contiguous()


class _Tiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scale: float, facts: list[int], *given: Tensor) -> Tensor:  # type: ignore[override]
        out, lse, norms = run_forward(list(given), scale, facts)
        ctx.save_for_backward(*given, out, lse, norms)
        ctx.scale, ctx.facts = scale, facts
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        found = run_backward([*ctx.saved_tensors, grad], ctx.scale, ctx.facts)
        return (None, None, *found, None)


# Opaque to torch.compile, which needs to know the shapes of what they return and nothing else.
@torch.library.custom_op("anyformer::tiles_forward", mutates_args=())
def run_forward(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    """Launch the kernels: q, k, v, bias, query, key, slope, keep -> out, log-sum-exp, norms."""
    from anyformer.ops.kernels import (
        launch,
        launch_forward,
        launch_norms,
    )  # Triton is no dependency

    q, k, v, *tables, slope, keep = given
    work = launch.Work(q, k, v, tables, keep, scale, launch.Facts(*facts), slope=slope)
    norms = launch_norms.norms(work, parts_of_norms(given, facts))
    (out,), lse = launch_forward.forward(replace(work, norms=norms))
    return [out, lse, norms]


@run_forward.register_fake
def _(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    q, v = given[0], given[2]
    batch, heads, queries, _ = q.shape
    out = q.new_empty(batch, queries, heads, v.shape[-1]).transpose(1, 2)
    number = lambda *shape: q.new_empty(shape, dtype=torch.float32)
    count = parts_of_norms(given, facts)
    norms = number(batch, heads, 2, count) if count else number(0)
    return [out, number(batch, heads, queries), norms]


def parts_of_norms(given: list[Tensor], facts: list[int]) -> int:
    """In how many parts norms are taken, by which a slope leaves far keys out; 0: all count.

    Only a slope makes keys faint, and only where every query's own key is sure to be seen.
    """
    q, k, _, *tables, slope, keep = given
    lead, start = facts[:2]
    keys = k.shape[2] - lead
    if any(t.numel() for t in (*tables, keep)) or not slope.numel():
        return 0
    if start < 0 or start + q.shape[2] > keys:
        return 0
    return min(MOST_PARTS, 1 << max(0, (keys - 1) // PART).bit_length())


@torch.library.custom_op("anyformer::tiles_backward", mutates_args=())
def run_backward(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    """Launch the backward kernels; given as before, then out, log-sum-exp, norms and grad."""
    from anyformer.ops.kernels import launch, launch_backward

    q, k, v, *tables, slope, keep, out, lse, norms, grad = given
    facts_ = launch.Facts(*facts)
    work = launch.Work(q, k, v, tables, keep, scale, facts_, slope=slope, norms=norms)
    return launch_backward.backward(work, out, lse, grad)


@run_backward.register_fake
def _(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    return [torch.empty_like(t) for t in given[:7]]
