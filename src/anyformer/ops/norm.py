"""A norm on a stream that goes on beside it, whose gradient is one pass.

Torch's compiler reads the stream, the gradient of the norm's output and that of the stream, and
leaves the last step of its sums to a kernel of 10 µs for each weight and bias. The kernel reads
each once, writes the sum of both gradients and has all sums over rows on the way: those of weight
and bias, and those of the biases that were added to the stream.
Letters: F width.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from anyformer.ops.entropy import computed_in
from anyformer.ops.tiles import TYPES

WIDEST = 4096  # of a row that a program has whole


class Norm(NamedTuple):
    """A norm over the last axis: weight (F,), perhaps bias (F,), whether means are subtracted."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    centred: bool


class Tails(NamedTuple):
    """Biases (F,) whose gradient is the sum of rows of the stream's: before and behind the norm.

    They are in what is added already, without a gradient of their own.
    """

    before: Tensor | None = None
    behind: Tensor | None = None


def takes(x: Tensor) -> bool:
    """Whether the kernel is for a stream x (..., F): a type and a width that it has."""
    return x.dtype in TYPES and computed_in(x) in TYPES and x.shape[-1] <= WIDEST


def entered(x: Tensor, said: Tensor | None, norm: Norm, tails: Tails) -> tuple[Tensor, Tensor]:
    """x (..., F), and what a branch said of it -> their sum, and its norm in a product's type."""
    how = (norm.eps, norm.centred, computed_in(x))
    with torch.autocast(x.device.type, enabled=False):
        found: Any = _Entered.apply(how, x, said, norm.weight, norm.bias, *tails)
    return found


class _Entered(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        how: tuple[float, bool, torch.dtype],
        x: Tensor,
        said: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        *tails: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        eps, ctx.centred, dtype = how
        stream = x.contiguous().view_as(x) if said is None else x + said
        wide = _as(torch.float32, stream)
        if ctx.centred:
            shift = None if bias is None else bias.float()
            y, mean, root = torch.native_layer_norm(wide, weight.shape, weight.float(), shift, eps)
        else:
            mean = root = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
            y = _as(x.dtype, wide * root) * weight
        ctx.save_for_backward(stream, mean, root, weight)
        ctx.types = [None if b is None else b.dtype for b in (weight, bias, *tails)]
        ctx.entered, ctx.said = x.dtype, None if said is None else said.dtype
        return stream, _as(dtype, y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, kept: Tensor, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        given, own = list(ctx.saved_tensors), any(t is not None for t in ctx.types[2:])
        low = ctx.said or given[0].dtype
        grads = (grad.contiguous(), kept.contiguous())
        dx, other, sums = run_backward(given, *grads, ctx.centred, low, own)
        said = None if ctx.said is None else other if low != dx.dtype else dx
        found = [None if t is None else sums[i].to(t) for i, t in enumerate(ctx.types)]
        return None, dx.to(ctx.entered), said, *found


def _as(dtype: torch.dtype, x: Tensor) -> Tensor:
    """x in a type; as it is where it has that.

    An output of a function that `to` or `float` was asked for in vain loses its gradient where
    torch 2.11 compiles it.
    """
    return x if x.dtype == dtype else x.to(dtype)


# Opaque to torch.compile, which needs to know the shapes of what it returns and nothing else.
@torch.library.custom_op("anyformer::norm_backward", mutates_args=())
def run_backward(
    given: list[Tensor], grad: Tensor, kept: Tensor, centred: bool, low: torch.dtype, own: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Launch the kernel: the gradient of x, it in another type, and sums over rows (4 or 2, F)."""
    from anyformer.ops.kernels import launch_normed  # Triton is no dependency

    return launch_normed.backward(launch_normed.Given(*given), grad, kept, centred, low, own)


@run_backward.register_fake
def _(
    given: list[Tensor], grad: Tensor, kept: Tensor, centred: bool, low: torch.dtype, own: bool
) -> tuple[Tensor, Tensor, Tensor]:
    x = given[0]
    other = x.new_empty(x.shape if low != x.dtype else (0,), dtype=low)
    sums = x.new_empty(4 if own else 2, x.shape[-1], dtype=torch.float32)
    return torch.empty_like(x), other, sums
