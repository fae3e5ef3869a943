"""A model made ready for decoding: the same parts and code, at less cost a call.

A step of decoding is many small operations, and a third of its time on a CPU goes into how torch
calls modules: a twin (parts/twin.py) is called without ceremony. Weights are shared with the model,
but for linear maps that are laid out anew: q, k and v as one map, and every map as it is read
fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer.model.heads import Vocabulary
from anyformer.model.model import Model
from anyformer.ops.attend import FAST_BFLOAT16
from anyformer.parts.attention import Attention
from anyformer.parts.feedforward import FeedForward
from anyformer.parts.twin import Twin, heard

MANY = 4  # rows from which a product of matrices is faster than one of a matrix and a vector
EVEN = 8  # outputs of a map on a GPU are a multiple of it
PACKS = torch.backends.mkldnn.is_available()
Lay = Callable[[Tensor, Tensor | None], Callable[[Tensor], Tensor]]  # how a map is made


class Laid:
    """A linear map whose weight lies as it is read fastest.

    That is as it is, but on a CPU: float32 for one row by input, for many in oneDNN's blocks, and
    bfloat16 always in those, where a CPU has products of it. Either is laid out when it is first
    asked for. On a GPU odd numbers of outputs, as vocabularies
    have, are filled up to what its kernels like.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.out_features = weight.shape[0]
        self.odd = weight.is_cuda and self.out_features % EVEN > 0
        more = EVEN - self.out_features % EVEN if self.odd else 0
        self.weight = F.pad(weight, (0, 0, 0, more)) if more else weight
        self.bias = F.pad(bias, (0, more)) if more and bias is not None else bias
        self.half = weight.dtype == torch.bfloat16 and FAST_BFLOAT16 and PACKS
        self.plain = weight.device.type != "cpu" or not (weight.dtype == torch.float32 or self.half)
        self.turned = self.packed = None

    def __call__(self, x: Tensor) -> Tensor:
        """x (…, in) -> (…, out)."""
        if self.plain:
            y = self._plain(x)
            return y[..., : self.out_features] if self.odd else y
        few = x.numel() < MANY * x.shape[-1] and not self.half
        if few or not PACKS:
            if self.turned is None:
                self.turned = self.weight.t().contiguous().t()
            return F.linear(x, self.turned, self.bias)
        if self.packed is None:
            rows = x.numel() // x.shape[-1]
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, rows)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")

    def _plain(self, x: Tensor) -> Tensor:
        """By torch's own kernels; compiled, a bias that stands apart is added on the way."""
        if self.bias is not None and torch.compiler.is_compiling():
            return F.linear(x, self.weight) + self.bias
        return F.linear(x, self.weight, self.bias)


def lean(model: Model, lay: Lay = Laid, dtype: torch.dtype | None = None) -> Model:
    """The twin of a model in evaluation, its linear maps made by `lay`, in a dtype or its own."""
    with torch.no_grad():
        made = LeanTwin(lay, dtype).of(model)
    assert isinstance(made, Model)
    return made


class LeanTwin(Twin):
    """A twin for evaluation, its linear maps made by `lay`, in a dtype or its own."""

    def __init__(self, lay: Lay, dtype: torch.dtype | None):
        super().__init__()
        self.lay, self.dtype = lay, dtype

    def held(self, tensor: Tensor | None) -> Tensor | None:
        """A weight or buffer in the twin's dtype."""
        if tensor is None or self.dtype is None or not tensor.is_floating_point():
            return tensor
        if id(tensor) not in self.made:
            self.made[id(tensor)] = tensor.detach().to(self.dtype)
        return self.made[id(tensor)]

    def map(self, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
        """A linear map as the twin lays it out."""
        return self.lay(weight.detach(), None if bias is None else bias.detach())

    def dress(self, module: nn.Module, own: dict[str, Any]) -> None:
        """Evaluation, and linear maps made anew."""
        own["training"] = False
        if isinstance(module, Attention | FeedForward):
            self._mapped(module, own)
        if isinstance(module, Model) and isinstance(module.head, Vocabulary):
            if heard(module.head):  # it is the model's own, and stays as it is
                return
            head, table = module.head, module.token_table()
            weight = head.weight if head.weight is not None else table
            assert weight is not None
            own["head"].__dict__["map"] = self.map(weight, head.bias)

    def _mapped(self, module: Attention | FeedForward, own: dict[str, Any]) -> None:
        """Linear maps made anew; those of a self-attention together too, or only so."""
        maps = {n: m for n, m in module._modules.items() if type(m) is nn.Linear and not heard(m)}
        names = ("q", "k", "v")
        if isinstance(module, Attention) and not module.spec.cross and module.spec.infused is None:
            qkv = [maps[n] for n in names if n in maps]
            biased = [m.bias is not None for m in qkv]
            if len(qkv) == len(names) and all(biased) == any(biased):
                bias = torch.cat([m.bias for m in qkv]) if all(biased) else None
                own["together"] = self.map(torch.cat([m.weight for m in qkv]), bias)
                maps = {n: m for n, m in maps.items() if n not in names}
        for name, map in maps.items():
            own[name] = self.map(map.weight, map.bias)
            del own["_modules"][name]  # and with it a copy of its weights in another dtype
