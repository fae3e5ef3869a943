"""Residual attention in Triton kernels: scores of the layers below are made again tile by tile.

The q and k of all layers are what is kept for the backward pass, as they are; their channels lie
side by side only while a kernel reads them. So memory is linear in the length, and in the depth.
Backwards, weights and the gradients of scores of a strip of queries lie in buffers of a set size,
and the gradients of every layer's q and k are products with those. Results are the same each time.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from anyformer.ops import tiles
from anyformer.ops.carry import apart, beside
from anyformer.ops.eager import widen
from anyformer.ops.plan import Plan


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why the kernels can't run this plan here, or None."""
    if v.shape[-1] > tiles.WIDEST:
        return f"has no tiles for values wider than {tiles.WIDEST}"
    return tiles.lacks(q[..., :1], k, v, plan)  # of q and k there may be any number of channels


def layered(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E) -> (B, H, Q, E)."""
    qs = [q, *(x.to(q.dtype) for x, _ in plan.carry)]
    ks = [k, *(x.to(k.dtype) for _, x in plan.carry)]
    groups = max(x.shape[1] for x in (v, *ks))
    ks[0], v = widen(k, groups), widen(v, groups)
    facts, (q, k, v, *_, keep) = tiles.prepared(q, ks[0], v, plan)
    qs[0], ks[0] = q, k
    return _Layered.apply(plan.scale, facts, keep, v, len(qs), *qs, *ks)  # type: ignore[no-any-return]


class _Layered(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx, scale: float, facts: list[int], keep: Tensor, v: Tensor, count: int, *pairs: Tensor
    ) -> Tensor:
        out, lse = run_forward([*pairs[:count]], [*pairs[count:]], [v, keep], scale, facts)
        ctx.save_for_backward(v, keep, out, lse, *pairs)
        ctx.scale, ctx.facts, ctx.count = scale, facts, count
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        v, keep, out, lse, *pairs = ctx.saved_tensors
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        qs, ks = pairs[: ctx.count], pairs[ctx.count :]
        given = [v, keep, out, lse, grad]
        dq, dk, dv = run_backward(qs, ks, given, ctx.scale, ctx.facts)
        found = [*apart(dq, qs), *apart(dk, ks)]
        return (None, None, None, dv, None, *found)


# Opaque to torch.compile, which needs to know the shapes of what they return and nothing else.
@torch.library.custom_op("anyformer::layered_forward", mutates_args=())
def run_forward(
    qs: list[Tensor], ks: list[Tensor], given: list[Tensor], scale: float, facts: list[int]
) -> tuple[Tensor, Tensor]:
    """Launch the forward kernel: q and k of all layers, v and keep -> out, log-sum-exp."""
    from anyformer.ops.kernels import launch, launch_layered  # Triton is no dependency

    v, keep = given
    work = launch_layered.Layers(beside(qs), beside(ks), v, keep, scale, launch.Facts(*facts))
    return launch_layered.forward(work)


@run_forward.register_fake
def _(
    qs: list[Tensor], ks: list[Tensor], given: list[Tensor], scale: float, facts: list[int]
) -> tuple[Tensor, Tensor]:
    q, v = qs[0], given[0]
    batch, heads, queries, _ = q.shape
    out = q.new_empty(batch, queries, heads, v.shape[-1]).transpose(1, 2)
    return out, q.new_empty(batch, heads, queries, dtype=torch.float32)


@torch.library.custom_op("anyformer::layered_backward", mutates_args=())
def run_backward(
    qs: list[Tensor], ks: list[Tensor], given: list[Tensor], scale: float, facts: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of all layers' channels and of v; given as before, then out, lse and grad."""
    from anyformer.ops.kernels import launch, launch_layered

    v, keep, out, lse, grad = given
    work = launch_layered.Layers(beside(qs), beside(ks), v, keep, scale, launch.Facts(*facts))
    return launch_layered.backward(work, out, lse, grad)


@run_backward.register_fake
def _(
    qs: list[Tensor], ks: list[Tensor], given: list[Tensor], scale: float, facts: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    like = lambda x: x.new_empty(x.shape)
    return like(beside(qs)), like(beside(ks)), like(given[0])
