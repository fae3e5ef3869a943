"""Torch's fused attention, for plans whose mask it knows without writing it out."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from anyformer.ops.fastest import fused
from anyformer.ops.mask import Causal, Mask, Padding, parts
from anyformer.ops.plan import Plan


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why the fused kernel can't run this plan in linear memory, or None."""
    if alone(q, plan):  # one query: a mask written out is no longer than the keys
        return _shapes(q, v)
    if isinstance(plan.start, Tensor):
        return "needs queries whose position the host knows, or a sure mask"
    causal, pads, rest = _sorted(plan.mask)
    if plan.dropout and q.device.type == "cpu":
        return "writes all scores out for dropout on a CPU"
    if rest:
        return f"has no mask {type(rest[0]).__name__}"
    if len(pads) > 1:
        return "takes one padding mask"
    if causal and not _sees_all(q, k, plan):
        if plan.start + q.shape[2] != k.shape[2] - plan.lead:
            return "has a causal mask only for queries that end where the keys do"
        if not (_square(q, k) or q.is_cuda):
            return "has no causal mask beside memory or a cache on a CPU"
        if pads and not (pads[0].right and _square(q, k)):
            return "takes a causal mask with padding only where the padding is on the right"
    return _shapes(q, v)


def _shapes(q: Tensor, v: Tensor) -> str | None:
    if q.shape[-1] > 4 * v.shape[-1] or v.shape[-1] > q.shape[-1]:
        return "needs values about as wide as q and k"
    return None


def sdpa(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, Q, D), k and v (B, G, K, D) -> (B, H, Q, D)."""
    if alone(q, plan):
        return _one(q, k, v, plan)
    causal, pads, _ = _sorted(plan.mask)
    upper, bias = False, None  # a branch, no comparison: lengths of a graph may have no number
    if causal and not _sees_all(q, k, plan):
        if _square(q, k):
            upper = True
        else:
            bias = _lower_right(q, k)
    elif pads:
        bias = _keys(pads[0], plan.lead)
    size = v.shape[-1]
    k, v = _grouped(k, v, q.shape[1])
    v = F.pad(v, (0, q.shape[-1] - size)) if size != q.shape[-1] else v
    out = fused(q, k, v, bias, plan.dropout, upper, plan.scale)[..., :size]
    return _blank(out, pads[0], plan) if pads else out


def alone(q: Tensor, plan: Plan) -> bool:
    """Whether there is one query, and nothing but a sure mask of keys."""
    bare = plan.mask is None or (type(plan.mask) is Padding and plan.mask.sure)
    return q.shape[2] == 1 and bare and not plan.dropout


def _one(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """One query a head; those that share keys ask them side by side, as if in a row."""
    batch, heads, _, wide = q.shape
    size, seen = v.shape[-1], None
    k, v = _grouped(k, v, heads)
    if isinstance(plan.mask, Padding):
        seen = plan.mask.added(q.dtype, plan.lead)
    q = q if k.shape[1] == heads else q.reshape(batch, k.shape[1], -1, wide)
    v = v if size == wide else F.pad(v, (0, wide - size))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=plan.scale)
    out = out if size == wide else out[..., :size]
    return out if k.shape[1] == heads else out.reshape(batch, heads, 1, size)


def _lower_right(q: Tensor, k: Tensor) -> Tensor:
    """Causality for queries that end where the keys do, which the kernel knows by its type."""
    from torch.nn.attention.bias import causal_lower_right  # loads torch's compiler, so late

    return causal_lower_right(q.shape[2], k.shape[2])


def _grouped(k: Tensor, v: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Keys and values with one number of heads: theirs if they agree, else all."""
    if k.shape[1] == v.shape[1]:
        return k, v
    wide = lambda x: x.repeat_interleave(heads // x.shape[1], 1)
    return wide(k), wide(v)


def _sorted(mask: Mask | None) -> tuple[bool, list[Padding], list[Mask]]:
    """Whether a mask is causal, its paddings, and the rest of it."""
    if type(mask) is Causal:  # as mostly
        return True, [], []
    every = parts(mask)
    pads = [m for m in every if isinstance(m, Padding)]
    rest = [m for m in every if not isinstance(m, (Padding, Causal))]
    return any(isinstance(m, Causal) for m in every), pads, rest


def _sees_all(q: Tensor, k: Tensor, plan: Plan) -> bool:
    """Whether causality hides nothing: one query, at the last key."""
    known = isinstance(plan.start, int) and plan.start + 1 == k.shape[2] - plan.lead
    return q.shape[2] == 1 and known


def _square(q: Tensor, k: Tensor) -> bool:
    return q.shape[2] == k.shape[2]


def _keys(padding: Padding, lead: int) -> Tensor:
    """The keys to see, (B, 1, 1, K); rows without any see all, and are blanked afterwards."""
    if lead:  # persistent keys are seen always
        return F.pad(padding.keep, (lead, 0), value=True)[:, None, None]
    return (padding.keep | ~padding.keep.any(-1, keepdim=True))[:, None, None]


def _blank(out: Tensor, padding: Padding, plan: Plan) -> Tensor:
    """Zeros where a row has no key to see."""
    return out if plan.lead else out * padding.keep.any(-1)[:, None, None, None]
