"""The feed-forward branch and the activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.ops import fusing, gelu
from anyformer.parts.base import part
from anyformer.parts.state import Call
from anyformer.parts.twin import bare

GELUS = {"gelu": False, "gelu_tanh": True}  # by tanh or not


def quick_gelu(x: Tensor) -> Tensor:
    """x · sigmoid(1.702 x)."""
    return x * torch.sigmoid(1.702 * x)


def squared_relu(x: Tensor) -> Tensor:
    """max(0, x)² (arXiv:2109.08668)."""
    return F.relu(x).square()


def identity(x: Tensor) -> Tensor:
    """x itself."""
    return x


# Functions with names, so that modules can be pickled.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "quick_gelu": quick_gelu,
    "relu": F.relu,
    "relu2": squared_relu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "identity": identity,
}


@part(S.FeedForward)
class FeedForward(nn.Module):
    """down(dropout(act(up(x)))), where gated down(dropout(up(x) · act(gate(x))))."""

    def __init__(self, spec: S.FeedForward, dim: int):
        super().__init__()
        hidden = spec.hidden or 4 * dim
        self.kind, self.act, self.dropout = spec.act, ACTIVATIONS[spec.act], spec.dropout
        self.up = nn.Linear(dim, hidden, spec.bias)
        self.gate = nn.Linear(dim, hidden, spec.bias) if spec.gated else None
        self.down = nn.Linear(hidden, dim, spec.bias)

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        """x (B, T, d) -> (B, T, d)."""
        inner = self._fused(x, call)
        if inner is None:
            up = call.linear("up", self.up, x)
            gate = None if self.gate is None else call.linear("gate", self.gate, x)
            inner = self.act(up) if gate is None else up * self.act(gate)
        if self.dropout and self.training:
            inner = F.dropout(inner, self.dropout)
        return call.linear("down", self.down, inner)

    def _fused(self, x: Tensor, call: Call) -> Tensor | None:
        """The inner activations with a kernel that adds the bias, in a compiled block on a GPU."""
        if not fusing.asked("gelu", x) or not gelu.takes(x):
            return None
        if self.kind not in GELUS or self.gate is not None or self.up.bias is None:
            return None
        own = len(call.lora) > 0 or (call.maps is not None and "up" in call.maps)
        if own or not bare(self.up):
            return None
        return gelu.biased(F.linear(x, self.up.weight), self.up.bias, GELUS[self.kind])
