"""Outputs of one product taken apart, whose gradients are put side by side in one pass.

Torch's compiler joins the gradients of q, k and v, then reads all of them again for the bias. The
kernel adds rows up while it has them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def apart(y: Tensor, bias: Tensor, widths: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """y (..., F), to which bias (F,) was added without a gradient -> three parts of it."""
    return _Apart.apply(y, bias, widths)  # type: ignore[return-value]


class _Apart(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, y: Tensor, bias: Tensor, widths: tuple[int, int, int]
    ) -> tuple[Tensor, ...]:
        ctx.dtype = bias.dtype
        return tuple(y.split_with_sizes(widths, -1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        out, sums = run_joined([g.contiguous() for g in grads])
        return out, sums.to(ctx.dtype), None


# Opaque to torch.compile, which needs to know the shapes of what it returns and nothing else.
@torch.library.custom_op("anyformer::sides_joined", mutates_args=())
def run_joined(grads: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Launch the kernel: gradients (..., width of each) side by side, and the sum of their rows."""
    from anyformer.ops.kernels import launch_sides  # Triton is no dependency

    return launch_sides.joined(grads)


@run_joined.register_fake
def _(grads: list[Tensor]) -> tuple[Tensor, Tensor]:
    first, width = grads[0], sum(g.shape[-1] for g in grads)
    sums = first.new_empty(width, dtype=torch.float32)
    return first.new_empty(*first.shape[:-1], width), sums
