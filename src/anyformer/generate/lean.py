"""A model made ready for decoding: the same parts and code, at less cost a call.

A step of decoding is many small operations, and a third of its time on a CPU goes into how torch
calls modules. A lean twin holds the same parts, each of a class that differs from its part's in
one thing: calling it is its forward. What listens to modules (hooks) stays heard: a part with
hooks is kept as it is. Weights are shared with the model, but for linear maps that are laid out
anew: q, k and v as one map, and every map as it is read fastest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer.model.heads import Vocabulary
from anyformer.model.model import Model
from anyformer.parts.attention import Attention
from anyformer.parts.feedforward import FeedForward

MANY = 4  # rows from which a product of matrices is faster than one of a matrix and a vector
PACKS = torch.backends.mkldnn.is_available()
Lay = Callable[[Tensor, Tensor | None], Callable[[Tensor], Tensor]]  # how a map is made


class Laid:
    """A linear map whose weight lies as it is read fastest.

    That is as it is, but for float32 on a CPU: for one row by input, for many in oneDNN's blocks.
    Either is laid out when it is first asked for.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.weight, self.bias, self.out_features = weight, bias, weight.shape[0]
        self.plain = weight.device.type != "cpu" or weight.dtype != torch.float32
        self.turned = self.packed = None

    def __call__(self, x: Tensor) -> Tensor:
        """x (…, in) -> (…, out)."""
        if self.plain:
            return F.linear(x, self.weight, self.bias)
        if x.numel() < MANY * x.shape[-1] or not PACKS:
            if self.turned is None:
                self.turned = self.weight.t().contiguous().t()
            return F.linear(x, self.turned, self.bias)
        if self.packed is None:
            rows = x.numel() // x.shape[-1]
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, rows)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def lean(model: Model, lay: Lay = Laid, dtype: torch.dtype | None = None) -> Model:
    """The twin of a model in evaluation, its linear maps made by `lay`, in a dtype or its own."""
    with torch.no_grad():
        made = _Twin(lay, dtype).of(model)
    assert isinstance(made, Model)
    return made


@functools.cache
def _called(kind: type[nn.Module]) -> type[nn.Module]:
    """The class of parts that are called without ceremony."""
    return type(f"Lean{kind.__name__}", (kind,), {"__call__": kind.forward})


def _heard(module: nn.Module) -> bool:
    found = (module._forward_hooks, module._forward_pre_hooks)
    return any(found) or "forward" in module.__dict__


class _Twin:
    """One pass through a model; what is met twice is made once."""

    def __init__(self, lay: Lay, dtype: torch.dtype | None):
        self.lay, self.dtype = lay, dtype
        self.made: dict[int, Any] = {}

    def of(self, module: nn.Module) -> Any:
        if id(module) not in self.made:
            self.made[id(module)] = module if _heard(module) else self._lean(module)
        return self.made[id(module)]

    def cast(self, tensor: Tensor | None) -> Tensor | None:
        if tensor is None or self.dtype is None or not tensor.is_floating_point():
            return tensor
        if id(tensor) not in self.made:
            self.made[id(tensor)] = tensor.detach().to(self.dtype)
        return self.made[id(tensor)]

    def map(self, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
        return self.lay(weight.detach(), None if bias is None else bias.detach())

    def _lean(self, module: nn.Module) -> nn.Module:
        twin = object.__new__(_called(type(module)))
        self.made[id(module)] = twin
        own = twin.__dict__
        own.update(module.__dict__, training=False)
        own["_parameters"] = {n: self.cast(p) for n, p in module._parameters.items()}
        own["_buffers"] = {n: self.cast(b) for n, b in module._buffers.items()}
        own["_modules"] = {n: m and self.of(m) for n, m in module._modules.items()}
        for held in ("_parameters", "_buffers", "_modules"):
            own.update(own[held])  # found at once, without nn.Module's search
        for name, value in module.__dict__.items():
            if isinstance(value, tuple) and any(isinstance(v, nn.Module) for v in value):
                own[name] = tuple(self.of(v) for v in value)
        if isinstance(module, Attention | FeedForward):
            self._mapped(module, own)
        if isinstance(module, Model) and isinstance(module.head, Vocabulary):
            head, table = module.head, module.token_table()
            weight = head.weight if head.weight is not None else table
            assert weight is not None
            own["head"].__dict__["map"] = self.map(weight, head.bias)
        return twin

    def _mapped(self, module: Attention | FeedForward, own: dict[str, Any]) -> None:
        """Linear maps made anew; those of a self-attention together too, or only so."""
        maps = {n: m for n, m in module._modules.items() if type(m) is nn.Linear and not _heard(m)}
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
