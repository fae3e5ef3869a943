"""GPT-2 as one would write it by hand, in fifty lines: what a library is measured against."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """A pre-norm block."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, d) -> (B, N, d)."""
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q, k, v = map(split, self.qkv(self.norms[0](x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Minimal(nn.Module):
    """Tokens, places, blocks and a tied head."""

    def __init__(self, vocab: int, dim: int, depth: int, heads: int, length: int = 1024):
        super().__init__()
        self.token, self.place = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        blocks = [Block(dim, heads) for _ in range(depth)]
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(dim)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
        """Logits (B, N, V), or with labels (B, N) the mean loss."""
        at = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.norm(self.blocks(self.token(input_ids) + self.place(at)))
        logits = F.linear(x, self.token.weight)
        if labels is None:
            return logits
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
