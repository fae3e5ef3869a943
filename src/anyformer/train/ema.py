"""Averaged weights: what is learnt, smoothed over the last steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class Ema:
    """Averages of the trained parameters, by name; in the first steps they follow faster."""

    def __init__(self, module: nn.Module, decay: float):
        self.decay = decay
        self.live = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.means = {n: p.detach().clone() for n, p in self.live.items()}

    def at(self, step: int) -> float:
        """The decay of a step counted from 0."""
        return min(self.decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move every average towards its parameter."""
        live = [_local(p) for p in self.live.values()]
        means = [_local(m) for m in self.means.values()]
        torch._foreach_lerp_(means, live, 1.0 - self.at(step))  # pyright: ignore[reportPrivateImportUsage]

    def tensors(self) -> dict[str, Tensor]:
        """The averages by name, to be saved or filled."""
        return dict(self.means)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """The module with averages as its weights, for a while."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, live in self.live.items():
            kept = live.detach().clone()
            live.copy_(self.means[name])
            self.means[name].copy_(kept)


def _local(x: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    return (x.to_local() if isinstance(x, DTensor) else x).detach()
