"""From inputs to the residual stream.

Letters: B batch, N positions, E width of the tables, d width of the stream, T memory tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.ops.rotary import sinusoid
from anyformer.parts import build
from anyformer.parts.init import Fresh


class Embed(Fresh):
    """Tokens, patches or values, their positions and types, a norm, a projection, memory tokens."""

    def __init__(self, spec: S.Embed, dim: int, own_tokens: bool = True):
        super().__init__()
        self.spec, width = spec, spec.dim or dim
        self.width, source = width, spec.source
        self.token = self.patch = self.value = self.cls = self.position = None
        if isinstance(source, S.Tokens) and own_tokens:
            self.token = nn.Embedding(source.vocab, width)
        if isinstance(source, S.Patches):
            self.patch = nn.Linear(source.patch**2 * source.channels, width, source.bias)
            self.cls = nn.Parameter(torch.empty(width)) if source.cls else None
        if isinstance(source, S.Values) and source.size is not None:
            self.value = nn.Linear(source.size, width, source.bias)
        if isinstance(spec.position, S.Learned):
            self.position = nn.Embedding(spec.position.length + spec.position.offset, width)
        self.segment = nn.Embedding(spec.types, width) if spec.types else None
        self.norm = build(spec.norm, width) if spec.norm is not None else None
        self.project = nn.Linear(width, dim) if spec.dim is not None else None
        self.memory = nn.Parameter(torch.empty(spec.memory, dim)) if spec.memory else None

    def fresh(self, std: float) -> None:
        """Small random vectors for the class token and the memory tokens."""
        for vector in (self.cls, self.memory):
            if vector is not None:
                nn.init.normal_(vector, std=std)

    def vectors(self, x: Tensor, table: Tensor | None) -> Tensor:
        """Ids (B, N), images (B, C, H, W) or values (B, N, size) -> (B, N, E)."""
        source = self.spec.source
        if isinstance(source, S.Tokens):
            weight = self.token.weight if self.token is not None else table
            assert weight is not None, "tokens of this model live in another one"
            x = F.embedding(x, weight)
        elif isinstance(source, S.Patches):
            x = self._patches(x, source)
        elif self.value is not None:
            x = self.value(x)
        return x if self.spec.scale == 1.0 else x * self.spec.scale

    def _patches(self, image: Tensor, source: S.Patches) -> Tensor:
        size = source.patch
        tiles = image.unfold(2, size, size).unfold(3, size, size)  # (B, C, h, w, p, p)
        rows = tiles.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)  # (B, h·w, p·p·C)
        assert self.patch is not None
        x = self.patch(rows)
        if self.cls is None:
            return x
        return torch.cat([self.cls.to(x.dtype).expand(x.shape[0], 1, -1), x], 1)

    def forward(self, x: Tensor, positions: Tensor, types: Tensor | None) -> Tensor:
        """Vectors (B, N, E) at positions (1 or B, N) -> the stream (B, N, d)."""
        x = x + self._place(positions, x) if self.spec.position is not None else x
        if self.segment is not None:
            zeros = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
            x = x + self.segment(zeros if types is None else types)
        x = x if self.norm is None else self.norm(x)
        x = F.dropout(x, self.spec.dropout) if self.spec.dropout and self.training else x
        return x if self.project is None else self.project(x)

    def _place(self, positions: Tensor, x: Tensor) -> Tensor:
        place = self.spec.position
        if isinstance(place, S.Learned) and self.position is not None:
            low = 0 if place.skip is None else -1  # no place: the row before that of position 0
            found = self.position(positions.clamp(min=low) + place.offset)
        elif isinstance(place, S.Sinusoidal):
            at = positions + place.offset
            found = sinusoid(at, self.width, place.theta, place.layout, place.closed).to(x.dtype)
            if place.skip is not None:
                found = found.masked_fill((positions < 0)[..., None], 0.0)
        else:
            raise InputError("this model has no positions to add")
        return found if place.scale == 1.0 else found * place.scale
