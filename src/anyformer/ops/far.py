"""Relative terms in two parts on a GPU: near keys by our kernels, far ones by the library's.

Beyond the low end of its tables a query adds the same to all its scores, so that far keys are
attended to plainly, and what a row gains there is added to their log-sum-exp; a bias counts from
its low end, where it gains nothing. What a key adds there, k · r for the first row r of its table,
the library takes as a part of its queries, q + r / scale; near keys have q itself and the keys'
table as it is.
Queries from the W-th on and keys up to the W-th last are a causal square of their own, which the
library's fused kernel knows; the W - 1 nearest keys and the query itself are a window. Both parts
are merged by their log-sum-exp, and go backwards with the merged output and log-sum-exp. The
library comes first: our kernels add its part to theirs before they write. Outputs lie as queries
do, as the library's own. Where too few keys are far for the library, all are near.

Letters: B batch, H heads, N tokens, D head size, W distance of the low end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from anyformer.ops import shelves, tiles
from anyformer.ops.eager import widen
from anyformer.ops.mask import Causal, Window, parts
from anyformer.ops.plan import Plan
from anyformer.ops.relative import Relative

WIDEST = 128  # channels of a head that the library takes
FEWEST = 2  # queries that the library is asked for: it refuses one
LOG2 = 0.6931471805599453


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why this plan has no far part that the library can take, or None."""
    terms = plan.relative
    if terms is None or not terms.tables() or terms.slope is not None:
        return "needs relative terms that are the same for all far keys: tables, and no slope"
    if any(not isinstance(m, Causal) for m in parts(plan.mask)) or plan.mask is None:
        return "needs a causal mask alone"
    if plan.start or plan.lead or q.shape[2] != k.shape[2]:
        return "needs queries and keys that are the same tokens"
    return unfit(q, k, v, plan)


def unfit(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why the library's kernel and ours can't share the work on such tensors, or None."""
    if v.shape[-1] != q.shape[-1] or q.shape[-1] > WIDEST or q.shape[-1] % 8:
        return f"needs values as wide as q and k: a multiple of 8 up to {WIDEST}"
    if q.is_cuda and q.dtype not in (torch.bfloat16, torch.float16):
        return "needs q, k and v of 16 bits"
    return tiles.lacks(q, k, v, plan)


def far(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, N, D), k and v (B, G, N, D) -> (B, H, N, D)."""
    terms = plan.relative
    assert terms is not None
    back, shelf = max(1, -terms.low), shelves.lacks(q, k, v, plan) is None
    if q.shape[2] - back < FEWEST:
        return tiles.tiles(q, k, v, plan, shelf)
    terms = terms.reach(-back, 0)
    k, v = widen(k, q.shape[1]), widen(v, q.shape[1])
    near = Plan(plan.scale, Causal() & Window(back), from_low_end(terms))
    facts, given = tiles.prepared(q, k, v, near, shelf)
    facts, wide = [*facts, 0, 0, int(shelf)], widening(q, terms.key, plan.scale)
    return _Far.apply(plan.scale, facts, wide, *given)  # type: ignore[no-any-return]


def from_low_end(near: Relative) -> Relative:
    """The same terms, a bias less its low end, in float32."""
    bias = None if near.bias is None else near.bias.float() - near.bias[:, :1].float()
    return Relative(near.low, near.high, bias, near.query, near.key)


def widening(q: Tensor, key: Tensor | None, scale: float) -> Tensor:
    """What far keys add as a part of queries, (H or 1, D) as q; empty without a table of keys."""
    if key is None:
        return q.new_empty(0, q.shape[-1])
    return F.pad(key[:, 0] / scale, (0, q.shape[-1] - key.shape[-1])).to(q.dtype)


class _Far(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scale: float, facts: list[int], *given: Tensor) -> Tensor:  # type: ignore[override]
        out, lse, plain = run_forward(list(given), scale, facts)
        ctx.save_for_backward(*given, out, lse, plain)
        ctx.scale, ctx.facts = scale, facts
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        *given, out, lse, plain = ctx.saved_tensors
        found = run_backward([*given, out, lse, plain, alike(grad, out)], ctx.scale, ctx.facts)
        return (None, None, *found, None)


@torch.library.custom_op("anyformer::far_forward", mutates_args=())
def run_forward(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    """What widens far queries, then all that ops.tiles has -> output, log-sum-exp by log 2.

    And that as the library counts, without what rows gain; empty where that is the same.
    """
    from anyformer.ops.kernels import launch, launch_forward  # Triton is no dependency

    wide, q, k, v, *tables, _, keep = given
    work = launch.Work(q, k, v, tables, keep, scale, launch.Facts(*facts))
    part = library(Square.of(q, k, v, work.facts.width, wide), scale)
    plain = q.new_empty(q.shape[:3] if tables[1].numel() else (1, 1, 0), dtype=torch.float32)
    work = replace(work, other=(*part, plain))
    (out,), lse = launch_forward.forward(work, torch.empty_like(q))
    return [out, lse, plain]


@run_forward.register_fake
def _(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    q, query = given[1], given[5]
    number = lambda shape: q.new_empty(shape, dtype=torch.float32)
    shape = q.shape[:3] if query.numel() else (1, 1, 0)
    return [torch.empty_like(q), number(q.shape[:3]), number(shape)]


@torch.library.custom_op("anyformer::far_backward", mutates_args=())
def run_backward(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    """The same, then what is made of it, and the output's gradient -> those of all that learns."""
    from anyformer.ops.kernels import launch, launch_backward

    wide, q, k, v, *tables, _, keep, out, lse, plain, grad = given
    query, sums = tables[1], plain if plain.numel() else lse
    above = query - query[:, :1]  # what near keys give to queries, and far ones don't take
    work = launch.Work(q, k, v, tables, keep, scale, launch.Facts(*facts), back=above)
    back = work.facts.width
    out_, lse_, grad_ = (x[:, :, back:] for x in (out, sums, grad))
    square = Square.of(q, k, v, back, wide)
    part = library_backward(square, out_, lse_ * LOG2, grad_, scale)
    found = launch_backward.backward(replace(work, other=part), out, lse, grad)
    if query.numel():  # gradients of a row's scores sum to 0: far ones are what near ones leave
        found[4][:, 0] -= found[4].sum(1, dtype=torch.float32).to(query.dtype)
    return [widened(part[0], wide), *found]


@run_backward.register_fake
def _(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    return [torch.empty_like(t) for t in given[:8]]


class Square(NamedTuple):
    """Queries and the keys that are far from them, as many."""

    q: Tensor
    k: Tensor
    v: Tensor

    @staticmethod
    def of(q: Tensor, k: Tensor, v: Tensor, back: int, wide: Tensor) -> Square:
        """Those of all tokens, the queries with what far keys add."""
        far = q[:, :, back:]
        far = far + wide[:, None] if wide.numel() else far
        return Square(far, k[:, :, :-back], v[:, :, :-back])


def widened(dq: Tensor, wide: Tensor) -> Tensor:
    """The gradient of what far queries gain, the sum of theirs; where heads share it, of all."""
    if not wide.numel():
        return torch.empty_like(wide)
    return dq.sum((0, 2), dtype=torch.float32).sum_to_size(wide.shape).to(wide.dtype)


def alike(grad: Tensor, out: Tensor) -> Tensor:
    """A gradient that lies as the output does, which some versions of the library count on."""
    return grad if grad.stride() == out.stride() else torch.empty_like(out).copy_(grad)


def library(square: Square, scale: float) -> tuple[Tensor, Tensor]:
    """Causal attention by the library's kernel: output (B, H, N, D), log-sum-exp (B, H, N)."""
    if square.q.is_cuda:
        run = torch.ops.aten._scaled_dot_product_cudnn_attention
        out, lse, *_ = run(*square, None, True, 0.0, True, False, scale=scale)
    else:
        run = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = run(*square, 0.0, True, scale=scale)
    return out, lse.reshape(out.shape[:3])


def library_backward(
    square: Square, out: Tensor, lse: Tensor, grad: Tensor, scale: float
) -> tuple[Tensor, ...]:
    """Its gradients of q, k and v."""
    if not square.q.is_cuda:
        run = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        lse = lse.transpose(1, 2).contiguous().transpose(1, 2)  # it wants tokens first
        return run(grad, *square, out, lse, 0.0, True, scale=scale)
    run = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    seeds = [torch.empty((), dtype=torch.long, device=out.device) for _ in range(2)]  # unread
    most = out.shape[2]
    lse = lse.contiguous()[..., None]
    none = (None, None, None)  # no bias, no rows of several lengths
    return run(grad, *square, out, lse, *seeds, *none, most, most, 0.0, True, scale=scale)
