"""Relative terms in two parts on a GPU: near keys by our kernels, far ones by the library's.

Beyond the low end of its tables a query adds the same to all its scores, so that far keys are
attended to plainly, and what a row gains there is added to their log-sum-exp; a bias counts from
its low end, where it gains nothing. What a key adds there, k · r for the first row r of its table,
the library takes as a part of its queries, q + r / scale; near keys have q itself and the keys'
table as it is.
Queries from the W-th on and keys up to the W-th last are a causal square of their own, which the
library's fused kernel knows; the W - 1 nearest keys and the query itself are a window. Both parts
are merged by their log-sum-exp, and go backwards with the merged output and log-sum-exp. The
library comes first: our kernels add its part to theirs before they write. Backwards, of large
tensors, some batch rows or heads take their turn after others, so that little of the library's is
there at once. Outputs lie as queries do, as the library's own. Where too few keys are far for the
library, all are near.

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
TURNS = 4  # in which gradients are made of what is large
ROWS = 1 << 16  # queries of all heads in a turn that keep a GPU busy
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
    return gradients(given, scale, facts)


@run_backward.register_fake
def _(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    return [torch.empty_like(t) for t in given[:8]]


def gradients(given: list[Tensor], scale: float, facts: list[int]) -> list[Tensor]:
    """What run_backward returns, made in turns."""
    wide, q, k, v, *tables, slope, keep, out, lse, plain, grad = given
    made = [torch.empty_like(x) for x in (q, k, v)]
    sums = [torch.zeros_like(t, dtype=torch.float32) for t in (wide, *tables)]
    rows = q, k, v, out, lse, plain if plain.numel() else lse, grad, *made
    for turn in turns(*q.shape[:3]):
        some = [turn.of(x) for x in rows], [turn.table(t) for t in (wide, *tables)]
        for total, found in zip(sums, in_turn(*some, keep, scale, facts), strict=True):
            turn.table(total).add_(found)
    if tables[1].numel():  # by row those of scores sum to 0: far ones are what near ones leave
        sums[2][:, 0] -= sums[2].sum(1)
    found = [x.to(t.dtype) for x, t in zip(sums, (wide, *tables), strict=True)]
    return [found[0], *made, *found[1:], torch.empty_like(slope)]


def in_turn(
    rows: list[Tensor], tables: list[Tensor], keep: Tensor, scale: float, facts: list[int]
) -> list[Tensor]:
    """Write the gradients of q, k and v; those of what far keys add and of tables, in float32.

    rows: q, k, v, output, log-sum-exp, that as the library counts, the output's gradient, and room
    for gradients; tables: what far keys add, bias, query and key.
    """
    from anyformer.ops.kernels import launch, launch_backward

    q, k, v, out, lse, plain, grad, *into = rows
    wide, bias, query, key = tables
    above = query - query[:, :1]  # what near keys give to queries, and far ones don't take
    work = launch.Work(q, k, v, [bias, query, key], keep, scale, launch.Facts(*facts), back=above)
    back = work.facts.width
    out_, lse_, grad_ = (x[:, :, back:] for x in (out, plain, grad))
    part = library_backward(Square.of(q, k, v, back, wide), out_, lse_ * LOG2, grad_, scale)
    found = launch_backward.backward(replace(work, other=part), out, lse, grad, into)
    return [widened(part[0], wide), *found[3:6]]


class Turn(NamedTuple):
    """Batch rows and heads whose gradients are made together."""

    rows: slice
    heads: slice

    def of(self, x: Tensor) -> Tensor:
        """Theirs of a tensor (B, H, …)."""
        return x[self.rows, self.heads]

    def table(self, t: Tensor) -> Tensor:
        """Theirs of a table (H or 1, …), which may be empty."""
        return t[self.heads] if t.shape[0] > 1 else t


def turns(batch: int, heads: int, tokens: int) -> list[Turn]:
    """Batch rows, or heads of one, in as many turns as large tensors need, and as even."""
    pairs = batch * heads
    some = pairs // max(1, min(TURNS, pairs, pairs * tokens // ROWS))
    rows, wide = even(batch, some // heads), even(heads, some)
    return [Turn(b, h) for b in rows for h in wide]


def even(length: int, most: int) -> list[slice]:
    """Cuts of a length, of so many at most, and of one at least."""
    cuts = -(-length // max(1, most))
    return [slice(i * length // cuts, (i + 1) * length // cuts) for i in range(cuts)]


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
    return dq.sum((0, 2), dtype=torch.float32).sum_to_size(wide.shape)


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
