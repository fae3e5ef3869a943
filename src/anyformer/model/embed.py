"""From inputs to the residual stream.

Letters: B batch, N positions, E width of the tables, d width of the stream, T memory tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.ops import lookup
from anyformer.ops.rotary import sinusoid
from anyformer.parts import build
from anyformer.parts.init import Fresh
from anyformer.spec.model import ends


class Embed(Fresh):
    """Tokens, patches or values, positions, types, languages, a norm, a map, memory tokens."""

    def __init__(self, spec: S.Embed, dim: int, own_tokens: bool = True):
        super().__init__()
        self.spec, width = spec, spec.dim or dim
        self.width, source, self.bands = width, spec.source, None
        self.token = self.patch = self.value = self.cls = self.position = None
        if isinstance(source, S.Tokens) and source.cutoffs:
            self.bands = nn.ModuleList(_bands(source, width, dim))
        elif isinstance(source, S.Tokens) and own_tokens:
            self.token = nn.Embedding(source.vocab, width)
        if isinstance(source, S.Patches):
            self.patch = nn.Linear(source.patch**2 * source.channels, width, source.bias)
            self.cls = nn.Parameter(torch.empty(width)) if source.cls else None
        if isinstance(source, S.Values) and source.size is not None:
            self.value = nn.Linear(source.size, width, source.bias)
        width = dim if spec.wide or self.bands is not None else width  # of what follows
        if isinstance(spec.position, S.Learned):
            self.position = nn.Embedding(spec.position.length + spec.position.offset, width)
        self.segment = nn.Embedding(spec.types, width) if spec.types else None
        self.language = nn.Embedding(spec.langs, width) if spec.langs else None
        normed = dim if spec.wide_norm else width
        self.norm = build(spec.norm, normed) if spec.norm is not None else None
        narrow = spec.dim is not None and self.bands is None
        self.project = nn.Linear(self.width, dim, spec.bias) if narrow else None
        self.memory = nn.Parameter(torch.empty(spec.memory, dim)) if spec.memory else None

    def fresh(self, std: float) -> None:
        """Small random vectors for the class token and the memory tokens."""
        for vector in (self.cls, self.memory):
            if vector is not None:
                nn.init.normal_(vector, std=std)

    def vectors(self, x: Tensor, table: Tensor | None) -> Tensor:
        """Ids (B, N), images (B, C, H, W) or values (B, N, size) -> (B, N, E)."""
        source = self.spec.source
        if isinstance(source, S.Tokens) and self.bands is not None:
            x = self._banded(x, source)
        elif isinstance(source, S.Tokens):
            weight = self.token.weight if self.token is not None else table
            assert weight is not None, "tokens of this model live in another one"
            x = lookup.rows(x, weight)
        elif isinstance(source, S.Patches):
            x = self._patches(x, source)
        elif self.value is not None:
            x = self.value(x)
        return x if self.spec.scale == 1.0 else x * self.spec.scale

    def _banded(self, ids: Tensor, source: S.Tokens) -> Tensor:
        """Each id's vector of its own table, mapped to the model's width: (B, N, d)."""
        parts: list[Tensor] = []
        for (low, end), (table, project) in zip(source.bands, self.tables(()), strict=True):
            assert project is not None
            rows = F.linear(F.embedding((ids - low).clamp(0, end - low - 1), table), project)
            parts.append(rows * ((ids >= low) & (ids < end))[..., None])
        return sum(parts[1:], parts[0])

    def tables(self, cutoffs: tuple[int, ...]) -> list[tuple[Tensor, Tensor | None]]:
        """The vectors of each band of ids (n, w), and the map to the stream (d, w) if there is one.

        One table is parted by the cutoffs that are given.
        """
        if self.bands is not None:
            return [(band[0].weight, band[1].weight) for band in self.bands]  # type: ignore[index]
        assert self.token is not None, "tokens of this model live in another one"
        bands = ends(cutoffs, self.token.num_embeddings)
        project = None if self.project is None else self.project.weight
        return [(self.token.weight[low:end], project) for low, end in bands]

    def _patches(self, image: Tensor, source: S.Patches) -> Tensor:
        size = source.patch
        tiles = image.unfold(2, size, size).unfold(3, size, size)  # (B, C, h, w, p, p)
        rows = tiles.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)  # (B, h·w, p·p·C)
        assert self.patch is not None
        x = self.patch(rows)
        if self.cls is None:
            return x
        return torch.cat([self.cls.to(x.dtype).expand(x.shape[0], 1, -1), x], 1)

    def forward(
        self, x: Tensor, positions: Tensor, types: Tensor | None, langs: Tensor | None = None
    ) -> Tensor:
        """Vectors (B, N, E) at positions (1 or B, N) -> the stream (B, N, d)."""
        x = self.project(x) if self.spec.wide and self.project is not None else x
        x = x + self._place(positions, x) if self.spec.position is not None else x
        if self.segment is not None:
            zeros = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
            x = x + self.segment(zeros if types is None else types)
        if self.language is not None and langs is not None:
            x = x + self.language(langs)
        late = None if self.spec.wide else self.project
        x = late(x) if self.spec.wide_norm and late is not None else x
        x = x if self.norm is None else self.norm(x)
        x = F.dropout(x, self.spec.dropout) if self.spec.dropout and self.training else x
        return x if late is None or self.spec.wide_norm else late(x)

    def _place(self, positions: Tensor, x: Tensor) -> Tensor:
        place = self.spec.position
        if isinstance(place, S.Learned) and self.position is not None:
            low = 0 if place.skip is None else -1  # no place: the row before that of position 0
            at = positions.clamp(min=low)
            found = self.position(at + place.offset if place.offset else at)
        elif isinstance(place, S.Sinusoidal):
            at = positions + place.offset
            found = sinusoid(at, x.shape[-1], place.theta, place.layout, place.closed).to(x.dtype)
            if place.skip is not None:
                found = found.masked_fill((positions < 0)[..., None], 0.0)
        else:
            raise InputError("this model has no positions to add")
        return found if place.scale == 1.0 else found * place.scale


def _bands(source: S.Tokens, width: int, dim: int) -> Iterator[nn.Module]:
    """A table for each band of ids and its map to the stream."""
    for i, (low, end) in enumerate(source.bands):
        narrow = width // source.shrink**i
        table = nn.Embedding(end - low, narrow)
        yield nn.ModuleList([table, nn.Linear(narrow, dim, bias=False)])
