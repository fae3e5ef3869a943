"""Persistent keys under a causal mask on a GPU: theirs by our kernels, the others by the library's.

Without the persistent keys in front, a causal plan is the square that the library's fused kernel
knows. One pass over its output adds what persistent keys give, by log-sum-exp; backwards the
library gets the merged output and log-sum-exp, a pass over its dq adds their share, and one over
its dk and dv puts theirs in front.

Letters: B batch, H heads, G key heads, N tokens, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from anyformer.ops.eager import widen
from anyformer.ops.far import FEWEST, Square, alike, library, library_backward, unfit
from anyformer.ops.mask import Causal, Padding, parts
from anyformer.ops.plan import Plan

MOST = 64  # persistent keys that fit a tile


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why this plan isn't a causal square beside few persistent keys, or None."""
    if not 0 < plan.lead <= MOST:
        return f"needs memory keys, up to {MOST}"
    masks = parts(plan.mask)
    right = lambda m: isinstance(m, Padding) and m.right
    if not any(isinstance(m, Causal) for m in masks):
        return "needs a causal mask"
    if any(not (isinstance(m, Causal) or right(m)) for m in masks):
        return "needs a causal mask alone, or with padding on the right"
    if isinstance(plan.start, Tensor) or plan.start or q.shape[2] != k.shape[2] - plan.lead:
        return "needs queries and keys that are the same tokens"
    if q.shape[2] < FEWEST:
        return f"needs {FEWEST} tokens, as the library does"
    return unfit(q, k, v, plan)


def lead(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, N, D), k and v (B, G, lead + N, D) -> (B, H, N, D)."""
    k, v = widen(k, q.shape[1]), widen(v, q.shape[1])
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    return _Lead.apply(plan.scale, plan.lead, q, k, v)  # type: ignore[no-any-return]


class _Lead(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scale: float, first: int, *given: Tensor) -> Tensor:  # type: ignore[override]
        out, lse = run_forward(list(given), scale, first)
        ctx.save_for_backward(*given, out, lse)
        ctx.scale, ctx.first = scale, first
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        *given, out, lse = ctx.saved_tensors
        found = run_backward([*given, out, lse, alike(grad, out)], ctx.scale, ctx.first)
        return None, None, *found


@torch.library.custom_op("anyformer::lead_forward", mutates_args=())
def run_forward(given: list[Tensor], scale: float, first: int) -> tuple[Tensor, Tensor]:
    """q, k and v, the first keys of which are persistent -> output, log-sum-exp."""
    from anyformer.ops.kernels import launch_lead  # Triton is no dependency

    q, k, v = given
    part = library(Square(q, k[:, :, first:], v[:, :, first:]), scale)
    whole = fitted(part[0], q), fitted(part[1], q.new_empty(q.shape[:3], device="meta"))
    work = launch_lead.Work(q, k[:, :, :first], v[:, :, :first], scale)
    launch_lead.merge(work, part, whole)
    return whole


@run_forward.register_fake
def _(given: list[Tensor], scale: float, first: int) -> tuple[Tensor, Tensor]:
    q = given[0]
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("anyformer::lead_backward", mutates_args=())
def run_backward(given: list[Tensor], scale: float, first: int) -> list[Tensor]:
    """The same, then output, log-sum-exp and the output's gradient -> those of q, k and v."""
    from anyformer.ops.kernels import launch_lead

    q, k, v, out, lse, grad = given
    square = Square(q, k[:, :, first:], v[:, :, first:])
    found, *parts = library_backward(square, out, lse, grad, scale)
    dq, dk, dv = fitted(found, q), torch.empty_like(k), torch.empty_like(v)
    if dq is not found:
        dq.copy_(found)
    work = launch_lead.Work(q, k[:, :, :first], v[:, :, :first], scale)
    made = launch_lead.backward(work, (out, lse), grad, dq)
    launch_lead.fill(work, parts, made, (dk, dv))
    return [dq, dk, dv]


@run_backward.register_fake
def _(given: list[Tensor], scale: float, first: int) -> list[Tensor]:
    return [torch.empty_like(x) for x in given[:3]]


def fitted(x: Tensor, like: Tensor) -> Tensor:
    """x where it lies as a tensor made like another would, else room for it that does.

    Tracing counts on that; on a GPU the library makes its tensors so.
    """
    plain = torch.empty_like(like, device="meta")
    same = x.stride() == plain.stride()
    return x if same else torch.empty_like(plain, dtype=x.dtype, device=x.device)
