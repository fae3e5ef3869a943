"""Weights of 8 bits with a scale for each row, for decoding that waits for memory.

A step reads every weight once; one byte of each in place of four is most of the gain. Activations
are bfloat16.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.errors import InputError

LARGEST = 127.0


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight (out, in) -> int8 (out, in) and scales (out,): the largest of a row becomes 127."""
    wide = weight.float()
    scale = wide.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / LARGEST
    return (wide / scale[:, None]).round().to(torch.int8), scale


class Int8:
    """A linear map of int8 weights: y = (x · weightᵀ) · scale + bias, in bfloat16."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        if weight.device.type != "cpu":
            raise InputError(
                "int8 weights are for a CPU, where torch has a product of them: "
                "leave them out on a GPU, or move the model to the CPU"
            )
        self.weight, scale = quantised(weight)
        self.scale = scale.bfloat16()
        self.bias = None if bias is None else bias.bfloat16()
        self.out_features = weight.shape[0]

    def __call__(self, x: Tensor) -> Tensor:
        """x (…, in) in bfloat16 -> (…, out)."""
        if len(x) == 1 and x.dim() == 3:  # one row of decoding, where views count
            return self._mapped(x[0])[None]
        y = self._mapped(x.reshape(-1, x.shape[-1]))
        return y.view(*x.shape[:-1], self.out_features)

    def _mapped(self, rows: Tensor) -> Tensor:
        y = torch._weight_int8pack_mm(rows, self.weight, self.scale)  # type: ignore[attr-defined]
        return y if self.bias is None else y.add_(self.bias)
