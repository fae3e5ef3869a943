"""Sines and cosines of positions: added, or used to turn pairs of channels.

Letters: B batch, H heads, T positions, D channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Stretch = Callable[[Tensor], Tensor]  # frequencies (dims / 2,) to slower ones


def angles(positions: Tensor, dims: int, theta: float, stretch: Stretch | None = None) -> Tensor:
    """positions (..., T) -> angles (..., T, dims / 2), position · theta^(-2i / dims)."""
    dtype = torch.float64 if positions.dtype == torch.float64 else torch.float32
    steps = torch.arange(0, dims, 2, device=positions.device, dtype=dtype)
    speed = 1.0 / theta ** (steps / dims)
    return positions.to(dtype)[..., None] * (speed if stretch is None else stretch(speed))


def llama3(speed: Tensor, factor: float, length: int, low: float, high: float) -> Tensor:
    """Slower below `low` turns over a length, as they are above `high`, blended between."""
    turns = length * speed / (2 * math.pi)
    fast = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - fast) * speed / factor + fast * speed


def yarn(speed: Tensor, factor: float, ends: tuple[float, float]) -> Tensor:
    """As they are before the first of the channels `ends`, slower after the last (2309.00071)."""
    low, high = max(ends[0], 0), min(ends[1], 2 * len(speed) - 1)
    high = high + 0.001 if high == low else high
    at = torch.arange(len(speed), dtype=speed.dtype, device=speed.device)
    slow = ((at - low) / (high - low)).clamp(0, 1)
    return slow * speed / factor + (1 - slow) * speed


def channel(turns: float, length: int, dims: int, theta: float) -> float:
    """The channel, perhaps between two, that turns so many times over a length."""
    return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))


def turn(x: Tensor, angle: Tensor, layout: str, gain: float = 1.0) -> Tensor:
    """Turn the first channels of x (B, H, T, D) by angle (1 or B, T, dims / 2), times a gain."""
    return turn_by(x, waves(angle, gain), layout)


def waves(angle: Tensor, gain: float = 1.0) -> tuple[Tensor, Tensor]:
    """Cosines and sines (1 or B, 1, T, dims / 2) of angles (1 or B, T, dims / 2), times a gain."""
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return (cos, sin) if gain == 1.0 else (cos * gain, sin * gain)


def turn_by(x: Tensor, wave: tuple[Tensor, Tensor], layout: str) -> Tensor:
    """Turn the first channels of x (B, H, T, D) by cosines and sines of half as many channels."""
    cos, sin = wave
    dims = 2 * cos.shape[-1]
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
