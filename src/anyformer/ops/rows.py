"""A linear map of few rows, as in a decoding step, with the norm before and what stands behind it.

Such a step reads every weight once for one row or some. What stands between two products is
little work, and as kernels of its own it would take most of the time.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anyformer.ops.tiles import INSTALLED, TYPES, interpreted

MOST = 64  # rows up to which the kernels are meant
FEW = 16  # the same in float32, of which tensor cores know nothing
NARROW = 16  # outputs of the narrowest program for more rows
ACTS = ("identity", "gelu", "gelu_tanh", "quick_gelu", "relu", "relu2", "silu", "tanh", "sigmoid")

Pair = tuple[Tensor, Tensor | None]  # weight (outs, ins) and bias (outs,)


class Norm(NamedTuple):
    """A norm over the inputs: by layer ("layer") or by root mean square ("root")."""

    kind: str
    eps: float
    gain: Tensor  # (ins,)
    shift: Tensor | None = None  # (ins,)


def lacks(weight: Tensor) -> str | None:
    """Why the kernels can't read a weight here, or None."""
    if not INSTALLED:
        return "needs Triton, which isn't installed"
    if not (weight.is_cuda or interpreted()):
        return "runs on a GPU, or with TRITON_INTERPRET=1"
    if weight.dtype not in TYPES:
        return "needs weights of float32, bfloat16 or float16"
    return None


class Rows:
    """act(norm(x) · weightᵀ + bias), or with a gate (… ) · act(norm(x) · gateᵀ + bias); + more."""

    def __init__(
        self, map: Pair, norm: Norm | None = None, gate: Pair | None = None, act: str = "identity"
    ):
        assert act in ACTS, act
        self.weight, self.act, self.norm = map[0].contiguous(), act, norm
        self.out_features = self.weight.shape[0]
        self.bias, self.sums = self._folded(self.weight, map[1])
        parts = -(-self.out_features // NARROW)
        self.arrived = self.weight.new_zeros(parts, dtype=torch.int32)
        self.gate = self.gate_bias = self.gate_sums = None
        if gate is not None:
            self.gate = gate[0].contiguous()
            self.gate_bias, self.gate_sums = self._folded(self.gate, gate[1])

    @property
    def most(self) -> int:
        """Rows up to which the kernels are meant."""
        return FEW if self.weight.dtype == torch.float32 else MOST

    def _folded(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """In float32: the bias with what the norm's shift adds, and the sums of gain · weight."""
        total = weight.new_zeros(len(weight), dtype=torch.float32)
        total = total if bias is None else total + bias
        if self.norm is None or self.norm.kind != "layer":
            return total, None
        if self.norm.shift is not None:
            total = total + weight.float() @ self.norm.shift.float()
        return total, weight.float() @ self.norm.gain.float()

    def __call__(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        """x (…, ins), more (…, outs) -> (…, outs)."""
        rows = x.reshape(-1, self.weight.shape[1])
        added = [] if more is None else [more.reshape(-1, self.out_features)]
        out = run_rows(rows, *self._given(), added, self.arrived)
        return out.view(*x.shape[:-1], self.out_features)

    def choose(self, x: Tensor, tokens: Tensor, broken: Tensor) -> None:
        """Write to tokens (rows,) the place of each row's greatest output, the first of several.

        broken (rows,) becomes True where that is infinite, or where some output is NaN.
        """
        found = [tokens, broken, self.arrived]
        run_choice(x.reshape(-1, self.weight.shape[1]), *self._given(), found)

    def _given(self) -> tuple[list[Tensor], str, float, list[Tensor]]:
        """What kernels read besides x."""
        kind, eps, gain, _ = self.norm or ("none", 0.0, None, None)
        there = lambda *tensors: [t for t in tensors if t is not None]
        maps = there(self.weight, self.bias, self.gate, self.gate_bias)
        return maps, f"{kind} {self.act}", eps, there(gain, self.sums, self.gate_sums)


@torch.library.custom_op("anyformer::rows", mutates_args=("arrived",))
def run_rows(
    x: Tensor,
    maps: list[Tensor],
    how: str,
    eps: float,
    norm: list[Tensor],
    more: list[Tensor],
    arrived: Tensor,
) -> Tensor:
    """Launch a kernel on x (rows, ins) -> (rows, outs).

    `maps` are weight and bias of the map and perhaps of the gate; `how` names norm and activation;
    `norm` is the norm's gain, where there is one, and by layer the sums of gain · weight of both;
    `more` (rows, outs) is added.
    `arrived` counts programs that share outputs; it is 0 before and after.
    """
    from anyformer.ops.kernels import launch_rows  # Triton is no dependency

    kind, act = how.split()
    more = [t.contiguous() for t in more]
    return launch_rows.run(x.contiguous(), maps, (kind, eps, norm), act, more, arrived)


@run_rows.register_fake
def _(
    x: Tensor,
    maps: list[Tensor],
    how: str,
    eps: float,
    norm: list[Tensor],
    more: list[Tensor],
    arrived: Tensor,
) -> Tensor:
    return x.new_empty(x.shape[0], maps[0].shape[0])


@torch.library.custom_op("anyformer::choice", mutates_args=("found",))
def run_choice(
    x: Tensor,
    maps: list[Tensor],
    how: str,
    eps: float,
    norm: list[Tensor],
    found: list[Tensor],
) -> None:
    """Launch kernels on x (rows, ins) that write `found`: tokens, broken (rows,), and arrivals."""
    from anyformer.ops.kernels import launch_rows  # Triton is no dependency

    kind, act = how.split()
    launch_rows.choose(x.contiguous(), maps, (kind, eps, norm), act, *found)


@run_choice.register_fake
def _(
    x: Tensor,
    maps: list[Tensor],
    how: str,
    eps: float,
    norm: list[Tensor],
    found: list[Tensor],
) -> None:
    return None
