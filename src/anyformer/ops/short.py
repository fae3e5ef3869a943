"""Short rows on a CPU: the scores of all heads by one batched product, scale and mask inside it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer.ops.eager import widen
from anyformer.ops.mask import Causal
from anyformer.ops.plan import Plan


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why it can't run this plan, or None."""
    if plan.mask is not None and type(plan.mask) is not Causal:
        return f"has no mask {type(plan.mask).__name__}"
    if plan.mask is not None and (plan.start or plan.lead or q.shape[2] != k.shape[2]):
        return "has a causal mask only for as many queries as keys"
    return None


def short(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, Q, D), k and v (B, G, K, D) -> (B, H, Q, D)."""
    heads, hidden = q.shape[1], q.new_zeros(())
    if plan.mask is not None:
        hidden = q.new_full((q.shape[2], k.shape[2]), -torch.inf).triu_(1)
    rows = lambda x: x.reshape(-1, *x.shape[2:])
    flat = rows(q), rows(widen(k, heads)), rows(widen(v, heads))
    scores = torch.baddbmm(hidden, flat[0], flat[1].mT, alpha=plan.scale)
    weights = scores.softmax(-1)
    weights = F.dropout(weights, plan.dropout) if plan.dropout else weights
    return torch.bmm(weights, flat[2]).view(*q.shape[:3], v.shape[-1])
