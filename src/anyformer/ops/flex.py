"""FlexAttention: any mask and pointwise change in one fused kernel; on a CPU forward only."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from anyformer.ops.mask import Mask
from anyformer.ops.plan import Plan

NARROWEST, WIDEST = 16, 256  # channels of a head that its kernels for a GPU take
KINDS = 512  # of masks, changes and shapes in one process, each compiled for itself
WIDE = 128  # channels from which tiles and tables together outgrow a GPU's shared memory, but
FEWER: Any = {"num_stages": 2}  # for fewer tiles that are loaded ahead


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why FlexAttention can't run this plan here, or None."""
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v, *plan.tensors()))
    if not q.is_cuda and learns:
        return "has no backward pass on a CPU"
    if q.is_cuda and q.dtype == torch.float64:
        return "has no float64 on a GPU"
    if q.is_cuda and q.shape[-1] < NARROWEST:
        return f"has no heads narrower than {NARROWEST} on a GPU"
    if q.is_cuda and q.shape[-1] > WIDEST:
        return f"has no heads wider than {WIDEST} on a GPU, whose tiles outgrow its shared memory"
    if isinstance(plan.start, Tensor):
        return "lays its blocks for positions that the host knows"
    if v.shape[-1] > q.shape[-1]:
        return "needs values at most as wide as q and k"
    return None


def flex(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, Q, D), k and v (B, G, K, D) -> (B, H, Q, D)."""
    heads, size = q.shape[1], v.shape[-1]
    if k.shape[1] != v.shape[1]:
        k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
    if not q.is_cuda:  # nothing learns here, but the CPU kernel looks at the flag of each tensor
        q, k, v = q.detach(), k.detach(), v.detach()
    seen = None
    if plan.mask is not None:
        seen = block_mask(plan.mask, (*q.shape[:3], k.shape[2]), plan.start, plan.lead, q.device)
    run = _fused if q.is_cuda else _unfused
    out = run(
        q.contiguous(),
        k.contiguous(),
        F.pad(v, (0, q.shape[-1] - size)).contiguous(),
        score_mod=score_mod(q, k, plan),
        block_mask=seen,
        scale=plan.scale,
        enable_gqa=k.shape[1] != heads,
        kernel_options=FEWER if q.is_cuda and q.shape[-1] >= WIDE else None,
    )
    assert isinstance(out, Tensor)
    return out[..., :size]


@functools.cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=False)


def _fused(*args: Any, **options: Any) -> Any:
    """Beyond a few kinds torch would give up and hold whole score matrices: here it may not."""
    if torch.compiler.is_compiling():  # part of a larger graph, which is compiled as a whole
        return _compiled()(*args, **options)
    from torch._dynamo import config  # a second that others need not wait

    many: dict[str, Any] = {"recompile_limit": KINDS, "accumulated_recompile_limit": KINDS}
    with config.patch({**many, "fail_on_recompile_limit_hit": True}):
        return _compiled()(*args, **options)


def _unfused(*args: Any, **options: Any) -> Any:
    """The CPU's way, chosen by name alone: without compiling, which torch warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        return flex_attention(*args, **options)


@functools.lru_cache(maxsize=64)
def block_mask(
    mask: Mask, shape: tuple[int, ...], start: int, lead: int, device: torch.device
) -> BlockMask:
    """The blocks that a mask leaves; kept, since a mask is made once a call."""

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return mask(b, h, q + start, (k - lead).clamp(min=0)) | (k < lead)

    batch, heads, queries, keys = shape
    return create_block_mask(seen, batch, heads, queries, keys, device=device)


def score_mod(q: Tensor, k: Tensor, plan: Plan) -> Callable[..., Tensor] | None:
    """The relative terms and the mods as one function of a score and its indices."""
    steps: list[Callable[..., Tensor]] = []
    if plan.relative is not None:
        steps.append(_relative(q, k, plan))
    for mod in plan.mods:
        at = lambda s, b, h, i, j, mod=mod: mod(s, b, h, i + plan.start, j - plan.lead)
        steps.append(at)
    if not steps:
        return None

    def changed(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for step in steps:
            s = step(s, b, h, i, j)
        return s

    return changed


def _relative(q: Tensor, k: Tensor, plan: Plan) -> Callable[..., Tensor]:
    """Gathers from (H, R), (B, H, Q, R) and (B, H, K, R): linear memory for clipped tables."""
    terms = plan.relative
    assert terms is not None
    low, high, start, lead = terms.low, terms.high, plan.start, plan.lead
    wide = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    by_query = None if terms.query is None else q[..., : terms.query.shape[-1]] @ terms.query.mT
    by_key = None if terms.key is None else wide[..., : terms.key.shape[-1]] @ terms.key.mT
    bias, slope = terms.bias, terms.slope
    if slope is not None:
        slope = slope.to(torch.promote_types(slope.dtype, torch.float32))

    def added(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        away = j - lead - i - start
        row = away.clamp(low, high) - low
        extra = torch.zeros_like(s) if slope is None else -slope[h] * away.abs()
        extra = extra if bias is None else extra + bias[h, row]
        extra = extra if by_query is None else extra + by_query[b, h, i, row]
        extra = extra if by_key is None else extra + by_key[b, h, j, row]
        return torch.where(j < lead, s, s + extra)

    return added
