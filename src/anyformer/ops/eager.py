"""The reference: attention with its scores written out. It runs every plan.

Letters: B batch, H heads, G key heads, Q queries, K keys, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer.ops import relative as rel
from anyformer.ops.carry import joined
from anyformer.ops.plan import Plan
from anyformer.ops.weigh import softmax


@dataclass(frozen=True)
class Place:
    """Where a block of scores stands: first batch row, position of its first query and key."""

    row: int
    query: int | Tensor
    key: int


def widen(x: Tensor, heads: int) -> Tensor:
    """x (B, G, K, D) -> (B, H, K, D), each key head repeated for its group of query heads."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def eager(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, Q, D), k and v (B, G, K, D) -> (B, H, Q, D)."""
    if q.shape[2] > 1:  # for one query, laying all keys side by side would cost more than sums
        q, k, plan = joined(q, k, plan)
    at = Place(0, plan.start, -plan.lead)
    return block(q, widen(k, q.shape[1]), widen(v, q.shape[1]), plan, at)


def block(q: Tensor, k: Tensor, v: Tensor, plan: Plan, at: Place) -> Tensor:
    """One block of queries against one run of keys that covers all they see."""
    w = weights(q, k, plan, at).to(v.dtype)
    w = F.dropout(w, plan.dropout) if plan.dropout else w
    w = mixed(w, plan.remix) if plan.remix is not None else w
    return w @ v


def mixed(x: Tensor, matrix: Tensor) -> Tensor:
    """Mix the heads of x (B, H, Q, K) by matrix (H, H)."""
    return torch.einsum("bhqk,hg->bgqk", x, matrix.to(x.dtype))


def weights(q: Tensor, k: Tensor, plan: Plan, at: Place) -> Tensor:
    """The attention weights (B, H, Q, K) of a block, before dropout and the second mixing."""
    s = (q * plan.scale) @ k.mT
    for q_below, k_below in plan.carry:
        s = s + (q_below.to(q.dtype) * plan.scale) @ widen(k_below, q.shape[1]).to(k.dtype).mT
    s = mixed(s, plan.mix) if plan.mix is not None else s
    if plan.relative is not None:
        s = s + _relative(q, k, plan.relative, at)
    index = _indices(q, k, at)
    for mod in plan.mods:
        s = mod(s, *index)
    weigh = plan.weigh or softmax
    if plan.mask is None:
        return weigh(s)
    seen = plan.mask(*index[:3], index[3].clamp(min=0))
    seen = seen if at.key >= 0 else seen | (index[3] < 0)
    w = weigh(s.masked_fill(~seen, torch.finfo(s.dtype).min))
    return w if plan.mask.total or at.key < 0 else w * seen.any(-1, keepdim=True)


def _relative(q: Tensor, k: Tensor, terms: rel.Relative, at: Place) -> Tensor:
    lead = max(0, -at.key)
    added = rel.scores(q, k[:, :, lead:], terms, at.query, max(0, at.key))
    return F.pad(added, (lead, 0)) if lead else added


def _indices(q: Tensor, k: Tensor, at: Place) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """b, h, and the positions of q and k, as index tensors that broadcast to (B, H, Q, K)."""

    def run(first: int | Tensor, count: int, *shape: int) -> Tensor:
        if isinstance(first, int):
            return torch.arange(first, first + count, device=q.device).view(shape)
        return (torch.arange(count, device=q.device) + first).view(shape)

    return (
        run(at.row, q.shape[0], -1, 1, 1, 1),
        run(0, q.shape[1], 1, -1, 1, 1),
        run(at.query, q.shape[2], 1, 1, -1, 1),
        run(at.key, k.shape[2], 1, 1, 1, -1),
    )
