"""Every plan in memory linear in the length: a block of queries at a time, recomputed backwards.

Blocks are eager blocks, so nothing is written twice. Only q, k, v and the output are kept, and the
q and k of layers whose scores are added, each as it is; the backward pass builds each block's
scores again. Keys that a mask's span rules out are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from anyformer.ops.carry import apart, beside
from anyformer.ops.eager import Place, block, widen
from anyformer.ops.plan import Plan

SCORES = 1 << 20  # scores of one block: 4 MiB in float32, which stays in a core's cache
QUERIES = 128  # queries of one block, fewer where the keys are many
FEWEST = 16  # but not fewer than these


@dataclass(frozen=True)
class Block:
    """Batch rows, queries and keys of one block, and where they stand."""

    rows: slice
    queries: slice
    keys: slice
    at: Place


def chunked(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, Q, D), k and v (B, G, K, D) -> (B, H, Q, D)."""
    qs, ks = [q, *(x for x, _ in plan.carry)], [k, *(x for _, x in plan.carry)]
    plan = replace(plan, carry=()) if plan.carry else plan
    return _Chunked.apply(plan, len(qs), v, *qs, *ks, *plan.tensors())  # type: ignore[no-any-return]


def blocks(q: Tensor, k: Tensor, plan: Plan) -> Iterator[Block]:
    """The blocks of a call, in order."""
    batch, heads, queries, keys = *q.shape[:3], k.shape[2]
    step = max(FEWEST, min(QUERIES, queries, SCORES // (heads * keys)))
    rows = max(1, SCORES // (heads * min(step, queries) * keys))
    for row in range(0, batch, rows):
        for first in range(0, queries, step):
            last = min(first + step, queries)
            low, high = plan.span(first, last, keys)
            place = Place(row, plan.start + first, low - plan.lead)
            yield Block(slice(row, row + rows), slice(first, last), slice(low, high), place)


def _block(q: Tensor, k: Tensor, v: Tensor, plan: Plan, at: Place) -> Tensor:
    """One block; keys that heads share are repeated within it alone."""
    return block(q, widen(k, q.shape[1]), widen(v, q.shape[1]), plan, at)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: Plan, count: int, v: Tensor, *tensors: Tensor) -> Tensor:  # type: ignore[override]
        ctx.plan, ctx.count = plan, count
        ctx.save_for_backward(v, *tensors[: 2 * count])
        ctx.random = random_state(v) if plan.dropout else None
        q, k = beside(tensors[:count]), beside(tensors[count : 2 * count])
        out = q.new_empty((*q.shape[:3], v.shape[3]))
        for b in blocks(q, k, plan):
            query, keys = (b.rows, slice(None), b.queries), (b.rows, slice(None), b.keys)
            out[query] = _block(q[query], k[keys], v[keys], plan, b.at)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        v, *pairs = ctx.saved_tensors
        qs, ks = pairs[: ctx.count], pairs[ctx.count :]
        q, k = beside(qs), beside(ks)
        plan: Plan = ctx.plan.apart()
        learned = [t for t in plan.tensors() if t.requires_grad]
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        sums: list[Tensor | None] = [None] * len(learned)
        with torch.enable_grad(), random_from(ctx.random, q):
            for b in blocks(q, k, plan):
                query, keys = (b.rows, slice(None), b.queries), (b.rows, slice(None), b.keys)
                leaves = [t.detach().requires_grad_() for t in (q[query], k[keys], v[keys])]
                out = _block(leaves[0], leaves[1], leaves[2], plan, b.at)
                found = torch.autograd.grad(
                    out, [*leaves, *learned], grad[query], allow_unused=True
                )
                dq[query] = found[0] if found[0] is not None else 0
                _add(dk[keys], found[1])
                _add(dv[keys], found[2])
                sums = [_total(a, b) for a, b in zip(sums, found[3:], strict=True)]
        given = iter(sums)
        rest = [next(given) if t.requires_grad else None for t in plan.tensors()]
        return (None, None, dv, *apart(dq, qs), *apart(dk, ks), *rest)


def _add(target: Tensor, found: Tensor | None) -> None:
    if found is not None:
        target += found


def _total(total: Tensor | None, found: Tensor | None) -> Tensor | None:
    return found if total is None else total if found is None else total + found


def random_state(like: Tensor) -> Tensor:
    """The state of the random numbers of a tensor's device."""
    return torch.cuda.get_rng_state(like.device) if like.is_cuda else torch.get_rng_state()


class random_from:  # noqa: N801
    """Within it, random numbers of a tensor's device go on from a kept state; None: as they are."""

    def __init__(self, state: Tensor | None, like: Tensor):
        self.state, self.like = state, like
        self.fork = torch.random.fork_rng(
            [like.device] if like.is_cuda else [], enabled=state is not None
        )

    def __enter__(self) -> None:
        self.fork.__enter__()
        if self.state is not None:
            if self.like.is_cuda:
                torch.cuda.set_rng_state(self.state, self.like.device)
            else:
                torch.set_rng_state(self.state)

    def __exit__(self, *args: object) -> None:
        self.fork.__exit__(*args)  # type: ignore[arg-type]
