"""Rotary positions of q and k, slower where the spec says so.

Letters: B batch, H heads, N new positions, K all positions, D channels.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.ops.rotary import Stretch, angles, channel, llama3, turn, turn_by, waves, yarn


def turned(spec: S.Rotary, q: Tensor, k: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """q (B, H, N, D) and k (B, G, K, D) turned by positions (1 or B, K), whose last N are q's."""
    dims = spec.dims or k.shape[-1]
    angle, gain = angles(at, dims, spec.theta, stretch_of(spec, dims)), gain_of(spec.scaling)
    return turn(q, angle[:, -q.shape[2] :], spec.layout, gain), turn(k, angle, spec.layout, gain)


def stepped(
    spec: S.Rotary, q: Tensor, k: Tensor, at: Tensor, made: dict[tuple, tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """The same for one position of each row; layers that turn alike share what was made."""
    wave = wave_of(spec, k.shape[-1], at, made)
    both = turn_by(torch.cat([q, k], 1), wave, spec.layout)
    return both[:, : q.shape[1]], both[:, q.shape[1] :]


def wave_of(
    spec: S.Rotary, size: int, at: Tensor, made: dict[tuple, tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Cosines and sines (1 or B, 1, N, dims / 2) that turn heads of a size at positions."""
    dims = spec.dims or size
    if (spec, dims) not in made:
        angle = angles(at, dims, spec.theta, stretch_of(spec, dims))
        made[spec, dims] = waves(angle, gain_of(spec.scaling))
    return made[spec, dims]


def stretch_of(spec: S.Rotary, dims: int) -> Stretch | None:
    """What makes turns slower; None if nothing does."""
    match spec.scaling:
        case S.Linear(factor=factor):
            return lambda speed: speed / factor
        case S.Llama3() as s:
            return partial(llama3, factor=s.factor, length=s.length, low=s.low, high=s.high)
        case S.Yarn() as s:
            low, high = (channel(n, s.length, dims, spec.theta) for n in (s.fast, s.slow))
            ends = (math.floor(low), math.ceil(high)) if s.whole else (low, high)
            return partial(yarn, factor=s.factor, ends=ends)
        case None:
            return None


def gain_of(scaling: S.Scaling | None) -> float:
    """What turned channels of q and k are multiplied by."""
    if not isinstance(scaling, S.Yarn):
        return 1.0
    usual = 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0
    return usual if scaling.gain is None else scaling.gain
