"""Sines and cosines of positions: added, or used to turn pairs of channels.

Letters: B batch, H heads, T positions, D channels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def angles(positions: Tensor, dims: int, theta: float) -> Tensor:
    """positions (..., T) -> angles (..., T, dims / 2), position · theta^(-2i / dims)."""
    dtype = torch.float64 if positions.dtype == torch.float64 else torch.float32
    steps = torch.arange(0, dims, 2, device=positions.device, dtype=dtype)
    return positions.to(dtype)[..., None] * theta ** (-steps / dims)


def turn(x: Tensor, angle: Tensor, layout: str) -> Tensor:
    """Turn the first channels of x (B, H, T, D) by angle (1 or B, T, dims / 2) (2104.09864)."""
    dims = 2 * angle.shape[-1]
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]  # (1 or B, 1, T, dims / 2)
    wide = torch.promote_types(x.dtype, torch.float32)
    head, rest = x[..., :dims].to(wide), x[..., dims:]
    a, b = head.chunk(2, -1) if layout == "halves" else (head[..., ::2], head[..., 1::2])
    turned = (a * cos - b * sin, b * cos + a * sin)
    joined = torch.cat(turned, -1) if layout == "halves" else torch.stack(turned, -1).flatten(-2)
    return torch.cat([joined.to(x.dtype), rest], -1) if rest.shape[-1] else joined.to(x.dtype)


def closed_angles(positions: Tensor, dims: int, theta: float) -> Tensor:
    """positions (..., T) -> angles (..., T, n), position · theta^(-i / (n - 1)), n = dims // 2."""
    steps = torch.linspace(0, -1, max(dims // 2, 1), device=positions.device)
    return positions.to(steps.dtype)[..., None] * theta**steps


def sinusoid(
    positions: Tensor, dims: int, theta: float, layout: str = "halves", closed: bool = False
) -> Tensor:
    """positions (..., T) -> (..., T, dims): sines and cosines (1706.03762).

    Closed, the last frequency is 1 / theta, and an odd last channel is 0.
    """
    wide = dims + dims % 2
    angle = closed_angles(positions, dims, theta) if closed else angles(positions, wide, theta)
    pair = (angle.sin(), angle.cos())
    joined = torch.cat(pair, -1) if layout == "halves" else torch.stack(pair, -1).flatten(-2)
    return F.pad(joined, (0, max(dims - joined.shape[-1], 0)))[..., :dims]
