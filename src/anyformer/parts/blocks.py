"""Block-sparse attention: the mask of a row and how often its keys count.

Letters: H heads.
"""

from __future__ import annotations

import torch
from torch import nn

from anyformer import spec as S
from anyformer.ops.blocks import Pattern
from anyformer.ops.mask import Mask
from anyformer.ops.plan import Mod
from anyformer.parts.base import part


@part(S.BlockSparse)
class BlockSparse(nn.Module):
    """Near blocks, both ends and drawn ones; it learns nothing."""

    def __init__(self, spec: S.BlockSparse, heads: int):
        super().__init__()
        self.spec, self.heads = spec, heads
        self.pattern = Pattern(spec.size, spec.random, spec.longest)

    def seen(
        self, length: int, layer: int, device: torch.device
    ) -> tuple[Mask | None, tuple[Mod, ...]]:
        """The mask of a row in a layer, None where all see all, and the change of its scores."""
        if not self.pattern.sparse(length):
            return None, ()
        if not (self.training or self.spec.always):
            return self.pattern.first(length)
        return self.pattern.drawn(length, self.heads, self.spec.seed + layer, device)
