"""A convolution beside the first block of a stack.

Letters: B batch, N positions, d width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.parts.base import build, part
from anyformer.parts.feedforward import ACTIVATIONS
from anyformer.parts.init import Fresh
from anyformer.parts.state import Call


@part(S.Convolution)
class Convolution(Fresh):
    """norm(x + act(conv(below))); padding and other documents are zeros to the convolution."""

    def __init__(self, spec: S.Convolution, dim: int):
        super().__init__()
        self.spec = spec
        self.weight = nn.Parameter(torch.empty(dim, dim // spec.groups, spec.kernel))
        self.bias = nn.Parameter(torch.empty(dim))
        self.norm = build(spec.norm, dim) if spec.norm is not None else None

    def fresh(self, std: float) -> None:
        """Small random weights, no bias."""
        nn.init.normal_(self.weight, std=std)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, below: Tensor, call: Call) -> Tensor:
        """The stream x (B, N, d) after the first block and that `below` it -> (B, N, d)."""
        if call.keep is not None:
            below = below.masked_fill(~call.keep[..., None], 0.0)
        found = self.bias.to(x.dtype)
        for step in range(self.spec.kernel):
            moved = _moved(below, step - self.spec.kernel // 2, call.documents)
            tap = self.weight[..., step : step + 1].to(x.dtype)
            found = found + F.conv1d(moved.mT, tap, groups=self.spec.groups).mT
        drop = self.spec.dropout
        found = F.dropout(found, drop) if drop and self.training else found
        x = x + ACTIVATIONS[self.spec.act](found)
        return x if self.norm is None else self.norm(x)


def _moved(x: Tensor, step: int, documents: Tensor | None) -> Tensor:
    """x (B, N, d) of the position `step` ahead, zeros where there is none or another document."""
    at = torch.arange(x.shape[1], device=x.device) + step
    near = at.clamp(0, x.shape[1] - 1)
    seen = (at == near)[None]
    seen = seen if documents is None else seen & (documents[:, near] == documents)
    return x[:, near].masked_fill(~seen[..., None], 0.0)
