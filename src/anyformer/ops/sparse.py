"""Top-k and entmax-1.5 in fused Triton kernels, linear in memory.

Both weigh a score by itself once the bound of its row is known, below which nothing weighs. One
kernel finds the bounds, of either kind, in two or three passes over tiles of scores that are never
written out; the kernels of `tiles` do the rest, with all that they can: relative terms, windows,
padding, persistent keys, shared keys. Results are the same each time.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from anyformer.ops import tiles
from anyformer.ops.plan import Plan
from anyformer.ops.weigh import entmax15, top_k

SOFTMAX, TOP, ENTMAX = 0, 1, 2  # as the kernels count them


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why the kernels can't run this plan here, or None."""
    if plan.mix is not None or plan.remix is not None:
        return "can't run the plan's mix, remix"
    if asked(plan, k) is None:
        return "has the weigh top_k and entmax15 alone"
    return tiles.lacks(q, k, v, plan)


def asked(plan: Plan, k: Tensor) -> tuple[int, int] | None:
    """Which weights a plan asks for, and how many of them; None for others."""
    weigh = plan.weigh
    if weigh is entmax15:
        return ENTMAX, 0
    if isinstance(weigh, partial) and weigh.func is top_k and set(weigh.keywords) == {"k"}:
        most = weigh.keywords["k"]
        return (TOP, most) if most < k.shape[2] else (SOFTMAX, 0)
    return None


def sparse(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E) -> (B, H, Q, E)."""
    kind = asked(plan, k)
    assert kind is not None, "lacks was asked first"
    if kind[0] == SOFTMAX:
        return tiles.tiles(q, k, v, plan)
    facts, given = tiles.prepared(q, k, v, plan)
    return _Sparse.apply(plan.scale, [*facts, *kind], *given)  # type: ignore[no-any-return]


class _Sparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scale: float, facts: list[int], *given: Tensor) -> Tensor:  # type: ignore[override]
        out, mean, level, bound = run_forward(list(given), scale, facts)
        ctx.save_for_backward(*given, mean if mean.numel() else out, level, bound)
        ctx.scale, ctx.facts = scale, facts
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        found = run_backward([*ctx.saved_tensors, grad], ctx.scale, ctx.facts)
        return (None, None, *found, None)


@torch.library.custom_op("anyformer::sparse_forward", mutates_args=())
def run_forward(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    """Launch the kernels: q, k, v, bias, query, key, slope, keep -> out, mean, level, bound.

    The gradient takes the mean in place of out where it isn't empty, as of entmax, whose level is
    its τ and which has no other bound.
    """
    from anyformer.ops.kernels import launch, launch_sparse  # Triton is no dependency

    q, k, v, *tables, slope, keep = given
    work = launch.Work(q, k, v, tables, keep, scale, launch.Facts(*facts), slope=slope)
    return launch_sparse.forward(work)


@run_forward.register_fake
def _(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    q, v = given[0], given[2]
    batch, heads, queries, _ = q.shape
    out = lambda: q.new_empty(batch, queries, heads, v.shape[-1]).transpose(1, 2)
    rows = lambda: q.new_empty(batch, heads, queries, dtype=torch.float32)
    if facts[-2] == ENTMAX:
        return [out(), out(), rows(), rows().new_empty(0)]
    return [out(), q.new_empty(0), rows(), rows()]


@torch.library.custom_op("anyformer::sparse_backward", mutates_args=())
def run_backward(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    """Launch the backward kernels; given as before, then mean or out, level, bound and grad."""
    from anyformer.ops.kernels import launch, launch_backward

    q, k, v, *tables, slope, keep, mean, level, bound, grad = given
    rows = bound if bound.numel() else level
    work = launch.Work(q, k, v, tables, keep, scale, launch.Facts(*facts), rows, slope)
    return launch_backward.backward(work, mean, level, grad)


@run_backward.register_fake
def _(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    return [torch.empty_like(t) for t in given[:7]]
