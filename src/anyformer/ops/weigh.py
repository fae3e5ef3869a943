"""From scores to weights, row by row along the last axis; hidden scores are very low numbers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Weigh = Callable[[Tensor], Tensor]


def softmax(scores: Tensor) -> Tensor:
    """exp(s) over its sum, at least in float32."""
    return scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))


def top_k(scores: Tensor, k: int) -> Tensor:
    """Softmax over the k largest scores of each row; ties at the threshold stay (1912.11637)."""
    if k >= scores.shape[-1]:
        return softmax(scores)
    threshold = scores.detach().topk(k, -1).values[..., -1:]
    return softmax(scores.masked_fill(scores < threshold, torch.finfo(scores.dtype).min))


def sigmoid(scores: Tensor, bias: float = 0.0) -> Tensor:
    """Each score by itself (arXiv:2409.04431)."""
    return torch.sigmoid(scores.to(torch.promote_types(scores.dtype, torch.float32)) + bias)


def entmax15(scores: Tensor) -> Tensor:
    """1.5-entmax: p = max(0, s/2 - τ)², with τ such that p sums to 1 (arXiv:1909.00015)."""
    return _Entmax15.apply(scores.to(torch.promote_types(scores.dtype, torch.float32)))  # type: ignore[no-any-return]


def sparsemax(scores: Tensor) -> Tensor:
    """The projection onto the simplex: p = max(0, s - τ), with p summing to 1 (1602.02068)."""
    return _Sparsemax.apply(scores.to(torch.promote_types(scores.dtype, torch.float32)))  # type: ignore[no-any-return]


def _ranks(x: Tensor) -> Tensor:
    return torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)


class _Entmax15(torch.autograd.Function):
    """Exact, by sorting: the support is the longest prefix above its own threshold."""

    @staticmethod
    def forward(ctx, scores: Tensor) -> Tensor:  # type: ignore[override]
        x = (scores - scores.max(-1, keepdim=True).values) / 2
        ordered = x.sort(-1, descending=True).values
        count = _ranks(x)
        mean = ordered.cumsum(-1) / count
        spread = (ordered.square().cumsum(-1) / count - mean.square()) * count
        threshold = mean - ((1 - spread) / count).clamp(min=0).sqrt()
        support = (threshold <= ordered).sum(-1, keepdim=True).clamp(min=1)
        weights = (x - threshold.gather(-1, support - 1)).clamp(min=0).square()
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[override]
        root = ctx.saved_tensors[0].sqrt()
        moved = grad * root
        return moved - moved.sum(-1, keepdim=True) / root.sum(-1, keepdim=True) * root


class _Sparsemax(torch.autograd.Function):
    """Exact, by sorting."""

    @staticmethod
    def forward(ctx, scores: Tensor) -> Tensor:  # type: ignore[override]
        x = scores - scores.max(-1, keepdim=True).values
        x = x.clamp(min=-2)  # τ is above -1, so what lies lower has no weight however low it is
        ordered = x.sort(-1, descending=True).values
        count = _ranks(x)
        threshold = (ordered.cumsum(-1) - 1) / count
        support = (threshold < ordered).sum(-1, keepdim=True).clamp(min=1)
        weights = (x - threshold.gather(-1, support - 1)).clamp(min=0)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[override]
        inside = (ctx.saved_tensors[0] > 0).to(grad.dtype)
        moved = grad * inside
        return moved - moved.sum(-1, keepdim=True) / inside.sum(-1, keepdim=True) * inside
