"""Fresh weights: every matrix normal, every bias zero, and what a part says of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from torch import nn

from anyformer import spec as S


class Fresh(nn.Module):
    """A part with parameters that are drawn in a way of its own; abstract."""

    @abstractmethod
    def fresh(self, std: float) -> None:
        """Draw this part's own parameters anew."""

    def gains(self) -> Mapping[nn.Module, float]:
        """Maps of this part whose deviation by fan-in takes one more factor."""
        return {}


def initialise(part: nn.Module, init: S.Init, dim: int, blocks: int | None = None) -> None:
    """Draw all weights of a part of a model that is `dim` wide and, if it has them, `blocks` deep.

    The last matrix of each branch has a deviation of its own where `init.depth_scaled`.
    """
    gains: dict[nn.Module, float] = {}
    own = init.std * dim**-0.5 if init.fan else init.std  # of what parts draw themselves
    deep = (2 * blocks) ** -0.5 if init.depth_scaled and blocks else 1.0
    for name, module in part.named_modules():
        if isinstance(module, nn.Linear):
            last = (".branch." in name or ".maps." in name) and name.endswith((".out", ".down"))
            fan = module.in_features**-0.5 * gains.get(module, 1.0) if init.fan else 1.0
            nn.init.normal_(module.weight, std=init.std * fan * (deep if last else 1.0))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=init.std)
        elif isinstance(module, Fresh):
            module.fresh(own)
            gains.update(module.gains())
