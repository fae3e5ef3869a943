"""How a branch joins the stream: x is the stream, y the branch's output."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.parts.base import part
from anyformer.parts.init import Fresh


@part(S.Add)
class Add(nn.Module):
    """skip · x + branch · y."""

    def __init__(self, spec: S.Add, dim: int):
        super().__init__()
        self.skip, self.branch = spec.skip, spec.branch

    def added(self, y: Tensor) -> Tensor:
        """What joins the stream by addition."""
        return y if self.branch == 1.0 else self.branch * y

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The stream after the branch."""
        return (x if self.skip == 1.0 else self.skip * x) + self.added(y)


@part(S.ReZero)
class ReZero(nn.Module):
    """x + gain · branch · y; the gain starts at 0."""

    def __init__(self, spec: S.ReZero, dim: int):
        super().__init__()
        self.branch = spec.branch
        self.gain = nn.Parameter(torch.zeros(1))

    def added(self, y: Tensor) -> Tensor:
        """What joins the stream by addition."""
        return self.gain * self.branch * y

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The stream after the branch."""
        return x + self.added(y)


@part(S.Scaled)
class Scaled(nn.Module):
    """x + gain · branch · y, or gain · x + branch · y; a gain per channel."""

    def __init__(self, spec: S.Scaled, dim: int):
        super().__init__()
        self.branch, self.on = spec.branch, spec.on
        self.gain = nn.Parameter(torch.full((dim,), spec.init))

    def added(self, y: Tensor) -> Tensor:
        """What joins the stream by addition."""
        return self.branch * y if self.on == "skip" else self.gain * self.branch * y

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The stream after the branch."""
        return (self.gain * x if self.on == "skip" else x) + self.added(y)


@part(S.Gated)
class Gated(Fresh):
    """A GRU cell whose state is the stream; its update gate starts open towards the state."""

    def __init__(self, spec: S.Gated, dim: int):
        super().__init__()
        self.branch, self.opening = spec.branch, spec.bias
        self.cell = nn.GRUCell(dim, dim)

    def fresh(self, std: float) -> None:
        """Torch's draw for the cell; the bias of the update gate opens it towards the stream."""
        self.cell.reset_parameters()
        width = self.cell.hidden_size
        with torch.no_grad():
            self.cell.bias_ih[width : 2 * width].add_(self.opening)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The stream after the branch."""
        rows = self.cell((self.branch * y).flatten(0, -2), x.flatten(0, -2))
        return rows.view_as(x)
