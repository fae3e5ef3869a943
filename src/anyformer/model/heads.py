"""From the stream to answers.

Letters: B batch, N positions, d width, V vocabulary, C classes or choices.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.parts import build, part
from anyformer.parts.feedforward import ACTIVATIONS
from anyformer.parts.init import Fresh


@part(S.Vocabulary)
class Vocabulary(Fresh):
    """Logits (B, N, V); tied, it uses the token table and has none of its own."""

    def __init__(self, spec: S.Vocabulary, model: S.Model):
        super().__init__()
        self.spec = spec
        assert isinstance(model.embed.source, S.Tokens)
        vocab, narrow = model.embed.source.vocab, model.embed.dim or model.dim
        width = narrow if spec.dense else model.dim
        self.dense = nn.Linear(model.dim, narrow) if spec.dense else None
        self.norm = build(spec.norm, width) if spec.norm is not None else None
        back = spec.tied and model.embed.dim is not None and not spec.dense
        self.project = nn.Linear(model.dim, narrow, bias=False) if back else None
        self.weight = None if spec.tied else nn.Parameter(torch.empty(vocab, width))
        self.bias = nn.Parameter(torch.empty(vocab)) if spec.bias else None

    def fresh(self, std: float) -> None:
        """Small random logits, no bias."""
        if self.weight is not None:
            nn.init.normal_(self.weight, std=std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """x (B, N, d) and the token table -> logits (B, N, V)."""
        if self.dense is not None:
            x = ACTIVATIONS[self.spec.act](self.dense(x))
        x = x if self.norm is None else self.norm(x)
        x = x if self.project is None else self.project(x)
        x = x if self.spec.scale == 1.0 else x * self.spec.scale
        weight = table if self.weight is None else self.weight
        assert weight is not None
        logits, cap = F.linear(x, weight, self.bias), self.spec.cap
        return logits if cap is None else torch.tanh(logits / cap) * cap


@part(S.Classes)
class Classes(nn.Module):
    """Logits (B, C) from the first position or the mean of all real ones."""

    def __init__(self, spec: S.Classes, model: S.Model):
        super().__init__()
        self.spec = spec
        self.hidden = nn.Linear(model.dim, spec.hidden) if spec.hidden is not None else None
        self.out = nn.Linear(spec.hidden or model.dim, spec.count, spec.bias)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """x (B, N, d) and which positions are real -> logits (B, C)."""
        pooled = first(x, keep) if self.spec.pool == "first" else mean(x, keep)
        pooled = _drop(self, pooled, self.spec.pool_dropout)
        if self.hidden is not None:
            pooled = ACTIVATIONS[self.spec.act](self.hidden(pooled))
        return self.out(_drop(self, pooled, self.spec.dropout))


@part(S.Choices)
class Choices(nn.Module):
    """One logit for each sequence (B·C, 1), from the first position."""

    def __init__(self, spec: S.Choices, model: S.Model):
        super().__init__()
        self.spec = spec
        self.hidden = nn.Linear(model.dim, spec.hidden) if spec.hidden is not None else None
        self.out = nn.Linear(spec.hidden or model.dim, 1)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """x (B·C, N, d) and which positions are real -> logits (B·C, 1)."""
        pooled = first(x, keep)
        if self.hidden is not None:
            pooled = ACTIVATIONS[self.spec.act](self.hidden(pooled))
        return self.out(_drop(self, pooled, self.spec.dropout))


@part(S.Span)
class Span(nn.Module):
    """Logits of the start and of the end of an answer, (B, N, 2)."""

    def __init__(self, spec: S.Span, model: S.Model):
        super().__init__()
        self.spec = spec
        self.out = nn.Linear(model.dim, 2)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """x (B, N, d) -> (B, N, 2)."""
        return self.out(_drop(self, x, self.spec.dropout))


@part(S.Detect)
class Detect(nn.Module):
    """A logit for each token that it was replaced, (B, N)."""

    def __init__(self, spec: S.Detect, model: S.Model):
        super().__init__()
        self.act = ACTIVATIONS[spec.act]
        self.dense = nn.Linear(model.dim, model.dim)
        self.out = nn.Linear(model.dim, 1)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """x (B, N, d) -> (B, N)."""
        return self.out(self.act(self.dense(x))).squeeze(-1)


@part(S.Pooler)
class Pooler(nn.Module):
    """The first position through a dense layer and an activation, (B, d)."""

    def __init__(self, spec: S.Pooler, model: S.Model):
        super().__init__()
        self.act = ACTIVATIONS[spec.act]
        self.dense = nn.Linear(model.dim, model.dim)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """x (B, N, d) and which positions are real -> (B, d)."""
        return self.act(self.dense(first(x, keep)))


@part(S.Project)
class Project(nn.Module):
    """A linear map of every position."""

    def __init__(self, spec: S.Project, model: S.Model):
        super().__init__()
        self.spec = spec
        self.out = nn.Linear(model.dim, spec.size, spec.bias)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """x (B, N, d) -> (B, N, size)."""
        return self.out(_drop(self, x, self.spec.dropout))


def first(x: Tensor, keep: Tensor | None) -> Tensor:
    """The first real position of each row, (B, d)."""
    if keep is None:
        return x[:, 0]
    return x[torch.arange(x.shape[0], device=x.device), keep.int().argmax(1)]


def mean(x: Tensor, keep: Tensor | None) -> Tensor:
    """The mean of the real positions of each row, (B, d)."""
    if keep is None:
        return x.mean(1)
    real = keep[..., None].to(x.dtype)
    return (x * real).sum(1) / real.sum(1).clamp(min=1)


def _drop(head: nn.Module, x: Tensor, rate: float) -> Tensor:
    """Dropout in training."""
    return F.dropout(x, rate) if rate and head.training else x
