"""Talking heads in Triton kernels, linear in memory.

Scores and weights of a strip of queries lie in a buffer of a set size, where one kernel mixes all
heads of a query at once, before and after the softmax; the strip's products are kernels of their
own. Results are the same each time.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from anyformer.ops import tiles
from anyformer.ops.plan import Plan

MOST = 64  # heads that fit a tile


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why the kernels can't run this plan here, or None."""
    if plan.weigh is not None:
        return "can't run the plan's weigh"
    if plan.mix is None and plan.remix is None:
        return "runs plans with mix or remix alone"
    if q.shape[1] > MOST:
        return f"has no tiles for more than {MOST} heads"
    return tiles.lacks(q, k, v, plan)


def talking(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E) -> (B, H, Q, E)."""
    facts, (q, k, v, *_, keep) = tiles.prepared(q, k, v, plan)
    mixes = [
        q.new_empty(0) if x is None else x.float().contiguous() for x in (plan.mix, plan.remix)
    ]
    return _Talking.apply(plan.scale, facts, q, k, v, *mixes, keep)  # type: ignore[no-any-return]


class _Talking(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scale: float, facts: list[int], *given: Tensor) -> Tensor:  # type: ignore[override]
        out, lse = run_forward(list(given), scale, facts)
        ctx.save_for_backward(*given, lse)
        ctx.scale, ctx.facts = scale, facts
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        found = run_backward([*ctx.saved_tensors, grad], ctx.scale, ctx.facts)
        return (None, None, *found, None)


@torch.library.custom_op("anyformer::talking_forward", mutates_args=())
def run_forward(given: list[Tensor], scale: float, facts: list[int]) -> tuple[Tensor, Tensor]:
    """Launch the kernels: q, k, v, mix, remix, keep -> out, log-sum-exp."""
    from anyformer.ops.kernels import launch, launch_talking, talk  # Triton is no dependency

    q, k, v, mix, remix, keep = given
    work = talk.Talk(q, k, v, mix, remix, keep, scale, launch.Facts(*facts))
    return launch_talking.forward(work)


@run_forward.register_fake
def _(given: list[Tensor], scale: float, facts: list[int]) -> tuple[Tensor, Tensor]:
    q, v = given[0], given[2]
    batch, heads, queries, _ = q.shape
    out = q.new_empty(batch, queries, heads, v.shape[-1]).transpose(1, 2)
    return out, q.new_empty(batch, heads, queries, dtype=torch.float32)


@torch.library.custom_op("anyformer::talking_backward", mutates_args=())
def run_backward(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    """Launch the backward kernels; given as before, then log-sum-exp and grad."""
    from anyformer.ops.kernels import launch, launch_talking, talk

    q, k, v, mix, remix, keep, lse, grad = given
    work = talk.Talk(q, k, v, mix, remix, keep, scale, launch.Facts(*facts))
    return launch_talking.backward(work, lse, grad)


@run_backward.register_fake
def _(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    return [torch.empty_like(t) for t in given[:5]]
