"""A linear map whose three products run in float8, each tensor with one scale.

A number of 8 bits has 3 behind the point and ends at 448 (e4m3), or 2 and ends at 57,344 (e5m2). So
a tensor is divided by a scale that brings its largest number to the end, and the scaled product
multiplies its sums, which are float32, by both scales. Inputs and weights are e4m3, gradients,
which differ more in size, e5m2. The host reads no scale: each is that of its tensor at the moment.
Off a GPU a twin multiplies the same float8 numbers in float32: as near, and of no gain.
Letters: M rows, K inputs, N outputs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from anyformer.errors import InputError

NUMBERS, SLOPES = torch.float8_e4m3fn, torch.float8_e5m2  # of values, of gradients
EVEN = 16  # M, K and N are multiples of it: what scaled products ask for
LEAST = 2.0**-100  # a tensor of zeros is divided as if its largest number were this
FIRST = (8, 9)  # the first CUDA capability that has such products


class Narrow(NamedTuple):
    """A matrix in float8, row after row, and its scale (), in float32: data · scale."""

    data: Tensor
    scale: Tensor


def scale_of(x: Tensor, kind: torch.dtype) -> Tensor:
    """The scale () of a tensor; one with NaN or Inf in it has a scale of NaN or Inf."""
    return x.abs().amax().float().clamp(min=LEAST) / torch.finfo(kind).max


def cast(x: Tensor, scale: Tensor, kind: torch.dtype) -> Tensor:
    """x (A, B) divided by its scale, in float8: nothing is beyond the range, so nothing is cut off.

    Inf becomes Inf / Inf, which is NaN.
    """
    return (x.float() / scale).to(kind).contiguous()


def narrow(x: Tensor, kind: torch.dtype) -> Narrow:
    """x (A, B) in float8."""
    scale = scale_of(x, kind)
    return Narrow(cast(x, scale, kind), scale)


def turned(x: Narrow) -> Narrow:
    """x (A, B) as (B, A), row after row."""
    return Narrow(x.data.t().contiguous(), x.scale)


def product(
    a: Narrow,
    b: Narrow,
    bias: Tensor | None = None,
    out: torch.dtype = torch.bfloat16,
    fast: bool = False,
) -> Tensor:
    """a (A, C), b (B, C) -> a bᵀ (A, B); fast: sums of fewer bits, as a forward pass can bear."""
    if not a.data.is_cuda:
        return plain(a, b, bias, out)
    return torch._scaled_mm(  # type: ignore[attr-defined]
        a.data, b.data.t(), scale_a=a.scale, scale_b=b.scale, bias=bias, out_dtype=out,
        use_fast_accum=fast,
    )  # fmt: skip


def plain(a: Narrow, b: Narrow, bias: Tensor | None, out: torch.dtype) -> Tensor:
    """The same product of the same numbers, summed in float32: what processors have no unit for."""
    with torch.autocast(a.data.device.type, enabled=False):
        y = a.data.float() @ b.data.float().t() * (a.scale * b.scale)
        return (y if bias is None else y + bias.float()).to(out)


def takes(weight: Tensor) -> bool:
    """Whether a weight (N, K) has sizes that scaled products take."""
    return weight.shape[0] % EVEN == 0 and weight.shape[1] % EVEN == 0


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., K), weight (N, K), bias (N,) -> (..., N), bfloat16; gradients in given types."""
    if not takes(weight):
        raise InputError(
            f"float8 products take sizes that are multiples of {EVEN}, not {tuple(weight.shape)}: "
            "use torch.nn.functional.linear"
        )
    rows = x.reshape(-1, x.shape[-1])  # (M, K)
    many = rows.shape[0]
    lack = -many % EVEN
    y = _Linear.apply(F.pad(rows, (0, 0, 0, lack)) if lack else rows, weight, bias)
    y = y[:many] if lack else y  # type: ignore[index]
    return y.view(*x.shape[:-1], weight.shape[0])  # type: ignore[union-attr]


class _Linear(torch.autograd.Function):
    """The inputs are kept in float8, the weight as it is, so that shards of it can come and go."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # type: ignore[override]
        x8, w8 = narrow(x, NUMBERS), narrow(weight, NUMBERS)
        ctx.save_for_backward(x8.data, x8.scale, weight, w8.scale)
        ctx.types = x.dtype, None if bias is None else bias.dtype
        return product(x8, w8, None if bias is None else bias.to(torch.bfloat16), fast=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        data, scale, weight, w_scale = ctx.saved_tensors
        slope, (x_type, bias_type) = narrow(grad, SLOPES), ctx.types
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            w8 = Narrow(cast(weight.t(), w_scale, NUMBERS), w_scale)
            dx = product(slope, w8).to(x_type)
        if ctx.needs_input_grad[1]:
            dw = product(turned(slope), turned(Narrow(data, scale)), out=weight.dtype)
        if ctx.needs_input_grad[2]:
            db = grad.sum(0, dtype=torch.float32).to(bias_type)
        return dx, dw, db


def fault(device: torch.device) -> str | None:
    """Why a device doesn't run such products; None where it does."""
    if device.type != "cuda":
        return f"{device.type} has no products in float8, so that they would only cost"
    found = torch.cuda.get_device_capability(device)
    if torch.version.hip is None and found < FIRST:
        name, least = torch.cuda.get_device_name(device), ".".join(map(str, FIRST))
        return f"{name} has capability {found[0]}.{found[1]}, and float8 begins with {least}"
    try:
        one = torch.ones(EVEN, EVEN, device=device)
        product(narrow(one, SLOPES), narrow(one, NUMBERS))
    except (RuntimeError, AttributeError) as error:
        return f"torch's scaled product doesn't run on {device}: {str(error).splitlines()[0]}"
    return None
