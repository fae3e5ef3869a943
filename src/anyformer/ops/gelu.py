"""GELU of a sum with a bias, and its gradients in one pass: the bias's is a sum over all rows.

Torch's compiler writes the gradient of the sum, then reads all of it again for the bias. The kernel
adds rows up while it has them. Letters: T rows, F width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from anyformer.ops.entropy import computed_in
from anyformer.ops.tiles import INSTALLED, interpreted

TYPES = (torch.bfloat16, torch.float16)  # whose rounding hides an error of 1e-7


def takes(x: Tensor) -> bool:
    """Whether the kernels are for products with x: of half precision, where Triton runs."""
    return INSTALLED and computed_in(x) in TYPES and (x.is_cuda or interpreted())


def biased(h: Tensor, bias: Tensor, tanh: bool) -> Tensor:
    """gelu(h + bias) of h (..., F), bias (F,), by tanh or exact; in h's type."""
    return _Biased.apply(h.reshape(-1, h.shape[-1]), bias, tanh).view(h.shape)  # type: ignore[union-attr]


class _Biased(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, bias: Tensor, tanh: bool) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(h, bias)
        ctx.tanh = tanh
        return run_forward(h, bias, tanh)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        h, bias = ctx.saved_tensors
        own, sums = run_backward(grad.contiguous(), h, bias, ctx.tanh)
        return own, sums.to(bias.dtype), None


# Opaque to torch.compile, which needs to know the shapes of what they return and nothing else.
@torch.library.custom_op("anyformer::gelu_forward", mutates_args=())
def run_forward(h: Tensor, bias: Tensor, tanh: bool) -> Tensor:
    """Launch the forward kernel."""
    from anyformer.ops.kernels import launch_gelu  # Triton is no dependency

    return launch_gelu.forward(h, bias, tanh)


@run_forward.register_fake
def _(h: Tensor, bias: Tensor, tanh: bool) -> Tensor:
    return torch.empty_like(h)


@torch.library.custom_op("anyformer::gelu_backward", mutates_args=())
def run_backward(grad: Tensor, h: Tensor, bias: Tensor, tanh: bool) -> tuple[Tensor, Tensor]:
    """Launch the backward kernel: the gradients of h and, in float32, of the bias."""
    from anyformer.ops.kernels import launch_gelu

    return launch_gelu.backward(grad, h, bias, tanh)


@run_backward.register_fake
def _(grad: Tensor, h: Tensor, bias: Tensor, tanh: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(h), bias.new_empty(bias.shape, dtype=torch.float32)
