"""Weights away from their fresh values."""

import torch
from torch import nn


@torch.no_grad()
def disturb(model: nn.Module, seed: int = 0) -> None:
    """Move every parameter by noise, so that no part hides behind its fresh weights."""
    random = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
