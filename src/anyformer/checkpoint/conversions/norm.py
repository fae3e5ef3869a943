"""Norms: the gain stays a gain, whatever the norm and wherever it stands."""

from __future__ import annotations

import torch
from torch import Size, Tensor

from anyformer import spec as S
from anyformer.checkpoint.conversions.base import Part

KNOWN = (S.LayerNorm, S.RMSNorm, S.ScaleNorm)


def norms(part: Part) -> None:
    """LayerNorm, RMSNorm and ScaleNorm into each other: the weight is kept as a gain."""
    for name, (old, new) in part.norms.items():
        weight = f"{name}weight"
        if old is None or new is None or not part.has(weight) or _alike(old, new):
            continue
        if not isinstance(old, KNOWN) or not isinstance(new, KNOWN):
            part.drop([weight, f"{name}bias"])
            continue
        gain = part.pieces[weight].tensor
        wanted = part.shapes.get(weight, gain.shape)
        why = f"the gain of {_called(old)} as that of {_called(new)}"
        part.change(weight, _gain(gain, old, new, wanted), why)


def _alike(old: S.Norm, new: S.Norm) -> bool:
    return type(old) is type(new) and _offset(old) == _offset(new)


def _offset(norm: S.Norm) -> bool:
    return isinstance(norm, S.RMSNorm) and norm.offset


def _called(norm: S.Norm) -> str:
    return f"{type(norm).__name__}{' with an offset of 1' if _offset(norm) else ''}"


def _gain(weight: Tensor, old: S.Norm, new: S.Norm, wanted: Size) -> Tensor:
    """The weight of the new norm: ScaleNorm has the mean of a gain per channel."""
    gain = weight.to(torch.promote_types(weight.dtype, torch.float32))
    gain = gain + 1 if _offset(old) else gain
    if gain.shape != wanted:
        gain = gain.mean()[None] if isinstance(new, S.ScaleNorm) else gain
        gain = gain.expand(wanted).clone() if isinstance(old, S.ScaleNorm) else gain
    return (gain - 1 if _offset(new) else gain).to(weight.dtype)
