"""Branches side by side."""

from __future__ import annotations

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.parts.base import build, part
from anyformer.parts.state import Call
from anyformer.spec.parallel import recalls


@part(S.Parallel)
class Parallel(nn.Module):
    """The sum of what each branch says of the input."""

    def __init__(self, spec: S.Parallel, dim: int):
        super().__init__()
        self.recalls = [recalls(branch) for branch in spec.branches]
        self.dropout = spec.dropout
        self.branches = nn.ModuleList(build(branch, dim) for branch in spec.branches)
        self.norms = nn.ModuleList(build(norm, dim) for norm in spec.norms)

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        """x (B, M, d), whose last N rows ask -> (B, N, d); self-attention reads all rows."""
        total: Tensor | None = None
        for i, branch in enumerate(self.branches):
            y = x if self.recalls[i] else x[:, -call.length :]
            y = self.norms[i](y) if len(self.norms) else y
            own = replace(call, lora=call.lora[i : i + 1]) if call.lora else call
            y = branch(y, own, f"{path}.{i}")
            y = F.dropout(y, self.dropout) if self.dropout and self.training else y
            total = y if total is None else total + y
        assert total is not None, "the rules ask for a branch"
        return total
