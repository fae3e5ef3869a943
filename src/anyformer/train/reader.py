"""What reads batches."""

from __future__ import annotations

import torch
from torch import nn

from anyformer.model.model import Model
from anyformer.objectives.base import Trainee
from anyformer.parts.twin import Twin
from anyformer.train.ranks import Spread


def reader(spread: Spread, device: torch.device) -> nn.Module:
    """The module; on a CPU, in one process, a twin of it as it now is, which costs less to call."""
    if device.type != "cpu" or spread.world * spread.copies > 1:
        return spread.module
    return Twin(formal=(Trainee, Model)).of(spread.module)
