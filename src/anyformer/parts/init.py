"""Fresh weights: every matrix normal, every bias zero, and what a part says of its own."""

from __future__ import annotations

from abc import abstractmethod

from torch import nn


class Fresh(nn.Module):
    """A part with parameters that are drawn in a way of its own; abstract."""

    @abstractmethod
    def fresh(self, std: float) -> None:
        """Draw this part's own parameters anew."""


def initialise(model: nn.Module, std: float, branch_std: float) -> None:
    """Draw all weights of a model; the last matrix of each branch has a deviation of its own."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            last = ".branch." in name and name.endswith((".out", ".down"))
            nn.init.normal_(module.weight, std=branch_std if last else std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        elif isinstance(module, Fresh):
            module.fresh(std)
