"""Scores written out in two halves of the queries, each against the keys that it can see.

Under a causal mask the first half never sees the second half's keys: a quarter of the products
and of the softmax falls away. Halves are eager blocks, so nothing is written twice.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.ops.eager import Place, block, widen
from anyformer.ops.plan import Plan


def halved(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, Q, D), k and v (B, G, K, D) -> (B, H, Q, D)."""
    k, v = widen(k, q.shape[1]), widen(v, q.shape[1])
    half = (q.shape[2] + 1) // 2
    runs = [(a, b) for a, b in ((0, half), (half, q.shape[2])) if b > a]
    return torch.cat([_half(q, k, v, plan, a, b) for a, b in runs], 2)


def _half(q: Tensor, k: Tensor, v: Tensor, plan: Plan, first: int, last: int) -> Tensor:
    low, high = plan.span(first, last, k.shape[2])
    at = Place(0, plan.start + first, low - plan.lead)
    return block(q[:, :, first:last], k[:, :, low:high], v[:, :, low:high], plan, at)


def saves(q: Tensor, k: Tensor, plan: Plan) -> bool:
    """Whether the first half sees fewer keys than there are."""
    if q.shape[2] < 64:
        return False
    low, high = plan.span(0, (q.shape[2] + 1) // 2, k.shape[2])
    return high - low < k.shape[2]
