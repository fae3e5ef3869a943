"""Norms over the last axis."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.parts.base import part


@part(S.LayerNorm)
class LayerNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) · weight + bias."""

    def __init__(self, spec: S.LayerNorm, dim: int):
        super().__init__()
        self.eps = spec.eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim)) if spec.bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d) -> (..., d)."""
        weight = self.weight
        return torch.layer_norm(x, weight.shape, weight, self.bias, self.eps)


@part(S.RMSNorm)
class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight, or · (1 + weight)."""

    def __init__(self, spec: S.RMSNorm, dim: int):
        super().__init__()
        self.eps, self.offset = spec.eps, spec.offset
        self.weight = nn.Parameter(torch.zeros(dim) if spec.offset else torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d) -> (..., d); the mean square is taken in float32 at least."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        even = F.rms_norm(wide, self.weight.shape, eps=self.eps)
        if self.offset:  # as the model was trained: the product in float32 too
            return (even * (1 + self.weight.to(even.dtype))).to(x.dtype)
        return even.to(x.dtype) * self.weight


@part(S.ScaleNorm)
class ScaleNorm(nn.Module):
    """x / sqrt(mean(x²)) · weight, with one weight; a root below eps counts as eps."""

    def __init__(self, spec: S.ScaleNorm, dim: int):
        super().__init__()
        self.eps = spec.eps
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d) -> (..., d)."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        floor = self.eps * self.eps
        root = wide.square().mean(-1, keepdim=True).clamp(min=floor).rsqrt()
        return (wide * root).to(x.dtype) * self.weight
