"""Attention of one query a row, as in every step of decoding, over the keys that it sees alone.

Torch's fused kernels read all keys of a cache of a set size, those to come as well, and have one
program for each head. Here tiles of keys that are hidden are skipped where they lie, heads that
share keys read them once, and long rows are read by several programs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.ops.mask import Padding
from anyformer.ops.plan import Plan
from anyformer.ops.sdpa import alone
from anyformer.ops.tiles import INSTALLED, TYPES, WIDEST, interpreted

SHARE, PROGRAMS = 256, 264  # keys of a program at least, programs that keep a GPU busy


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why the kernel can't run this plan here, or None."""
    if not INSTALLED:
        return "needs Triton, which isn't installed"
    if not (q.is_cuda or interpreted()):
        return "runs on a GPU, or with TRITON_INTERPRET=1"
    if not alone(q, plan):
        return "takes one query a row, and a sure mask of keys"
    if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
        return "has no backward pass"
    if q.dtype not in TYPES or not q.dtype == k.dtype == v.dtype:
        return "needs q, k and v of one type: float32, bfloat16 or float16"
    if max(q.shape[-1], v.shape[-1]) > WIDEST:
        return f"has no tiles for heads wider than {WIDEST}"
    return None


def one(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, 1, D), k (B, G, K, D), v (B, G, K, E) -> (B, H, 1, E)."""
    if k.shape[1] != v.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    if isinstance(plan.mask, Padding):
        added = plan.mask.added(torch.float32, plan.lead)[:, 0, 0]
    else:
        added = torch.zeros(1, k.shape[2], device=q.device)
    shares = shares_of(k)
    out, lse = run_one(q, k, v, added, plan.scale, shares)
    if shares == 1:
        return out.to(q.dtype)
    weights = lse.softmax(-1)[..., None]  # (B, H, shares, 1)
    return (out * weights).sum(2, keepdim=True).to(q.dtype)


def shares_of(k: Tensor) -> int:
    """Programs for each key head: more than one where few rows would leave a GPU idle."""
    return max(1, min(k.shape[2] // SHARE, PROGRAMS // (k.shape[0] * k.shape[1])))


@torch.library.custom_op("anyformer::one", mutates_args=())
def run_one(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor, scale: float, shares: int
) -> tuple[Tensor, Tensor]:
    """Launch the kernel -> (B, H, shares, E) and log-sum-exps (B, H, shares), in float32."""
    from anyformer.ops.kernels import launch_one  # Triton is no dependency

    return launch_one.one(q, k, v, added.contiguous(), scale, shares)


@run_one.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor, scale: float, shares: int
) -> tuple[Tensor, Tensor]:
    batch, heads = q.shape[:2]
    out = q.new_empty(batch, heads, shares, v.shape[-1], dtype=torch.float32)
    return out, q.new_empty(batch, heads, shares, dtype=torch.float32)
