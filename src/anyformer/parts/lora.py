"""LoRA of an application: what it adds to the linear maps of a branch that it shares.

Letters: R rank, d inputs, e outputs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.parts.base import part
from anyformer.parts.init import Fresh
from anyformer.spec.walk import updates


class Update(Fresh):
    """scale · b (a x), and a bias where asked; b and the bias start at zero."""

    def __init__(self, size: tuple[int, int, int], bias: bool, scale: float):
        super().__init__()
        rank, into, out = size
        self.scale = scale
        self.a = nn.Parameter(torch.empty(rank, into))
        self.b = nn.Parameter(torch.zeros(out, rank))
        self.bias = nn.Parameter(torch.zeros(out)) if bias else None

    def fresh(self, std: float) -> None:
        """A change of nothing, which learns because a is not zero."""
        nn.init.normal_(self.a, std=std)
        nn.init.zeros_(self.b)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (…, d) -> (…, e)."""
        y = F.linear(F.linear(x, self.a), self.b, self.bias if self.scale == 1.0 else None)
        if self.scale == 1.0:
            return y
        return self.scale * y if self.bias is None else self.scale * y + self.bias


@part(S.Lora)
class Lora(nn.ModuleDict):
    """An update for each linear map of a branch that the spec names."""

    def __init__(self, spec: S.Lora, leaf: S.Leaf, dim: int):
        super().__init__(
            {
                name: Update(size, bias, spec.scale)
                for name, (size, bias) in updates(spec, leaf, dim).items()
            }
        )
