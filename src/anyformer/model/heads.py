"""From the stream to answers.

Letters: B batch, N positions, d width, V vocabulary, C classes or choices.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.embed import Embed
from anyformer.model.inputs import readable
from anyformer.ops.entropy import IGNORED, Map, entropy_sum, takes
from anyformer.parts import build, part
from anyformer.parts.feedforward import ACTIVATIONS
from anyformer.parts.init import Fresh
from anyformer.spec.model import ends

LARGE = 1 << 24  # logits that are better not there all at once: 64 MiB in float32
FAR = 1e6  # what a logit loses where no answer may be


@part(S.Vocabulary)
class Vocabulary(Fresh):
    """Logits (B, N, V); tied, it uses the token table and has none of its own."""

    def __init__(self, spec: S.Vocabulary, model: S.Model):
        super().__init__()
        self.spec = spec
        assert isinstance(model.embed.source, S.Tokens)
        vocab, narrow = model.embed.source.vocab, model.embed.dim or model.dim
        width = narrow if spec.dense and not spec.wide else model.dim
        self.dense = nn.Linear(model.dim, width, spec.dense_bias) if spec.dense else None
        self.norm = build(spec.norm, width) if spec.norm is not None else None
        back = spec.tied and model.embed.dim is not None and (spec.wide or not spec.dense)
        self.project = nn.Linear(model.dim, narrow, bias=False) if back else None
        self.weight = None if spec.tied else nn.Parameter(torch.empty(vocab, width))
        self.bias = nn.Parameter(torch.empty(vocab)) if spec.bias else None
        self.place = nn.Embedding(spec.enhanced, model.dim) if spec.enhanced else None
        self.map: Callable[[Tensor], Tensor] | None = None  # in place of the table, in a decoder

    def fresh(self, std: float) -> None:
        """Small random logits, no bias."""
        if self.weight is not None:
            nn.init.normal_(self.weight, std=std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def asking(self, positions: Tensor) -> Tensor | None:
        """What positions (1 or B, N) add to the queries of the last block, if anything."""
        if self.place is None:
            return None
        rows = self.place.num_embeddings
        reach = int(positions.max()) + 1 if readable(positions) else positions.shape[1]
        if reach > rows:
            raise InputError(f"the input reaches {reach} positions, but head.enhanced has {rows}")
        return self.place(positions)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        """x (B, N, d) and the token table -> logits (B, N, V)."""
        x, weight = self._led(x), self._weight(table)
        logits = F.linear(x, weight, self.bias) if self.map is None else self.map(x)
        cap = self.spec.cap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def scored(
        self, x: Tensor, table: Tensor | None, targets: Tensor, at: Tensor | None
    ) -> dict[str, Tensor]:
        """The sum of losses of targets (B, N) and the hits, or the logits where they are few.

        `at` (K,) names the positions of all B·N that are asked; what is ignored among them counts
        for nothing.
        """
        weight = self._weight(table)
        whole = self.map is None and type(weight) in (Tensor, nn.Parameter)  # no shard of others
        if not whole or not takes(x) or targets.numel() * len(weight) < LARGE:
            return {"logits": self(x, table)}
        rows, labels = x.flatten(0, 1), targets.flatten()
        if at is None and not x.is_cuda:  # where the host may ask without waiting
            at = (labels != IGNORED).nonzero()[:, 0]
        if at is not None:
            rows, labels = rows[at], labels[at]
        loss, hits = entropy_sum(self._led(rows), Map(weight, self.bias, self.spec.cap), labels)
        return {"target_loss": loss, "target_hits": hits}

    def _led(self, x: Tensor) -> Tensor:
        """What the map to the vocabulary reads."""
        if self.dense is not None:
            x = ACTIVATIONS[self.spec.act](self.dense(x))
        x = x if self.norm is None else self.norm(x)
        x = x if self.project is None else self.project(x)
        return x if self.spec.scale == 1.0 else x * self.spec.scale

    def _weight(self, table: Tensor | None) -> Tensor:
        """The map to the vocabulary: its own, or the token table."""
        weight = table if self.weight is None else self.weight
        assert weight is not None
        return weight


@part(S.Transform)
class Transform(nn.Module):
    """A dense layer, an activation and a norm, or a feed-forward block and a norm."""

    def __init__(self, spec: S.Transform, dim: int):
        super().__init__()
        self.spec, self.act = spec, ACTIVATIONS[spec.act]
        self.dense = nn.Linear(dim, spec.hidden or dim, spec.bias)
        self.down = nn.Linear(spec.hidden, dim, spec.bias) if spec.hidden is not None else None
        self.norm = build(spec.norm, dim) if spec.norm is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d) -> (..., d)."""
        made = self.act(self.dense(_drop(self, x, self.spec.dropout)))
        if self.down is not None:
            made = x + _drop(self, self.down(made), self.spec.dropout)
        return made if self.norm is None else self.norm(made)


@part(S.Classes)
class Classes(nn.Module):
    """Logits (B, C) from one position, the first or the last of some, or from their mean."""

    def __init__(self, spec: S.Classes, model: S.Model):
        super().__init__()
        self.spec = spec
        self.transform = build(spec.transform, model.dim) if spec.transform is not None else None
        self.hidden = nn.Linear(model.dim, spec.hidden) if spec.hidden is not None else None
        self.out = nn.Linear(spec.hidden or model.dim, spec.count, spec.bias)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """x (B, N, d) and which positions may be read -> logits (B, C)."""
        pooled = _drop(self, POOLS[self.spec.pool](x, keep), self.spec.pool_dropout)
        pooled = pooled if self.transform is None else self.transform(pooled)
        if self.hidden is not None:
            pooled = ACTIVATIONS[self.spec.act](self.hidden(pooled))
        return self.out(_drop(self, pooled, self.spec.dropout))


@part(S.Choices)
class Choices(nn.Module):
    """One logit for each sequence (B·C, 1), from the first position or the mean of real ones."""

    def __init__(self, spec: S.Choices, model: S.Model):
        super().__init__()
        self.spec = spec
        self.transform = build(spec.transform, model.dim) if spec.transform is not None else None
        self.hidden = nn.Linear(model.dim, spec.hidden) if spec.hidden is not None else None
        self.out = nn.Linear(spec.hidden or model.dim, 1)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """x (B·C, N, d) and which positions are real -> logits (B·C, 1)."""
        pooled = _drop(self, POOLS[self.spec.pool](x, keep), self.spec.pool_dropout)
        pooled = pooled if self.transform is None else self.transform(pooled)
        if self.hidden is not None:
            pooled = ACTIVATIONS[self.spec.act](self.hidden(pooled))
        return self.out(_drop(self, pooled, self.spec.dropout))


@part(S.Span)
class Span(nn.Module):
    """Logits of the start and of the end of an answer, (B, N, 2), far lower where none may be."""

    def __init__(self, spec: S.Span, model: S.Model):
        super().__init__()
        self.spec = spec
        self.transform = build(spec.transform, model.dim) if spec.transform is not None else None
        self.out = nn.Linear(model.dim, 2)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """x (B, N, d) and where an answer may be, if a token tells -> (B, N, 2)."""
        x = x if self.transform is None else self.transform(x)
        logits = self.out(_drop(self, x, self.spec.dropout))
        if self.spec.token is None or keep is None:
            return logits
        return torch.where(keep[..., None], logits, logits - FAR)


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
        self.transform = build(spec.transform, model.dim) if spec.transform is not None else None
        self.out = nn.Linear(model.dim, spec.size, spec.bias)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """x (B, N, d) -> (B, N, size)."""
        x = x if self.transform is None else self.transform(x)
        return self.out(_drop(self, x, self.spec.dropout))


@part(S.Adaptive)
class Adaptive(Fresh):
    """Log-probabilities (B, N, V) from the token tables, band of ids by band."""

    def __init__(self, spec: S.Adaptive, model: S.Model):
        super().__init__()
        source, narrow = model.embed.source, model.embed.dim or model.dim
        assert isinstance(source, S.Tokens)
        self.cutoffs, self.bands = spec.cutoffs, ends(spec.cutoffs, source.vocab)
        mapped = bool(source.cutoffs) or model.embed.dim is not None
        self.project = nn.Linear(model.dim, narrow, bias=False) if mapped else None
        self.slots = nn.Linear(narrow, len(spec.cutoffs)) if spec.cutoffs else None
        self.bias = nn.Parameter(torch.empty(source.vocab))

    def fresh(self, std: float) -> None:
        """No bias."""
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, embed: Embed) -> Tensor:
        """x (B, N, d) and the embedding, whose tables are used -> (B, N, V)."""
        (weight, _), *rarer = embed.tables(self.cutoffs)
        bias, first = self.bias[: weight.shape[0]], len(weight)
        if self.slots is not None:
            weight = torch.cat([weight, self.slots.weight])
            bias = torch.cat([bias, self.slots.bias])
        near = x if self.project is None else self.project(x)
        top = F.linear(near, weight, bias).log_softmax(-1)
        found = [top[..., :first]]
        for i, ((low, end), (table, project)) in enumerate(zip(self.bands[1:], rarer, strict=True)):
            far = x if project is None else F.linear(x, project.mT)
            inside = F.linear(far, table, self.bias[low:end]).log_softmax(-1)
            found.append(top[..., first + i, None] + inside)
        return torch.cat(found, -1)


@part(S.Pretraining)
class Pretraining(nn.Module):
    """Logits of every position's token (B, N, V) and of two classes of the row (B, 2)."""

    def __init__(self, spec: S.Pretraining, model: S.Model):
        super().__init__()
        pair = S.Classes(count=2, hidden=model.dim, act=spec.act, dropout=spec.dropout)
        self.tokens, self.pair = Vocabulary(spec.tokens, model), Classes(pair, model)
        self.name = {"next": "seq_relationship_logits", "order": "sop_logits"}[spec.asks]

    def forward(self, x: Tensor, keep: Tensor | None, table: Tensor | None) -> dict[str, Tensor]:
        """x (B, N, d), which positions are real and the token table -> both logits by name."""
        return {"prediction_logits": self.tokens(x, table), self.name: self.pair(x, keep)}


@part(S.Double)
class Double(nn.Module):
    """Logits of every position's token (R, N, V) and one for each of R sequences (R, 1)."""

    def __init__(self, spec: S.Double, model: S.Model):
        super().__init__()
        self.spec, self.tokens = spec, Vocabulary(spec.tokens, model)
        self.out = nn.Linear(model.dim, 1)

    def forward(
        self, x: Tensor, keep: Tensor | None, at: Tensor | None, table: Tensor | None
    ) -> dict[str, Tensor]:
        """x (R, N, d), real positions, the one to judge by (R,), the token table -> both logits."""
        rows = torch.arange(x.shape[0], device=x.device)
        pooled = _drop(self, last(x, keep) if at is None else x[rows, at], self.spec.dropout)
        chosen = ACTIVATIONS[self.spec.act](self.out(pooled))
        return {"logits": self.tokens(x, table), "mc_logits": chosen}


@part(S.Pixels)
class Pixels(Fresh):
    """An image (B, C, H, W) from its patches, and the vector that stands for hidden ones."""

    def __init__(self, spec: S.Pixels, model: S.Model):
        super().__init__()
        source = model.embed.source
        assert isinstance(source, S.Patches)
        self.cls, self.side = int(source.cls), source.image // source.patch
        self.stride = spec.stride or source.patch
        self.mask = nn.Parameter(torch.empty(model.embed.dim or model.dim))
        self.out = nn.Linear(model.dim, self.stride**2 * source.channels)

    def fresh(self, std: float) -> None:
        """Hidden patches are zeros at first."""
        nn.init.zeros_(self.mask)

    def hide(self, x: Tensor, hidden: Tensor | None) -> Tensor:
        """Vectors (B, N, E), the mask's where patches (B, h·w) are hidden."""
        if hidden is None:
            return x
        hidden = F.pad(hidden.bool(), (self.cls, 0))
        return torch.where(hidden[..., None], self.mask.to(x.dtype), x)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, d) -> (B, C, H, W)."""
        grid = self.out(x[:, self.cls :]).mT.unflatten(2, (self.side, self.side))
        return F.pixel_shuffle(grid, self.stride)


def first(x: Tensor, keep: Tensor | None) -> Tensor:
    """The first real position of each row, (B, d)."""
    if keep is None:
        return x[:, 0]
    return x[torch.arange(x.shape[0], device=x.device), keep.int().argmax(1)]


def last(x: Tensor, keep: Tensor | None) -> Tensor:
    """The last real position of each row, (B, d); the first where none is real."""
    if keep is None:
        return x[:, -1]
    places = torch.arange(x.shape[1], device=x.device) * keep
    return x[torch.arange(x.shape[0], device=x.device), places.argmax(1)]


def mean(x: Tensor, keep: Tensor | None) -> Tensor:
    """The mean of the real positions of each row, (B, d)."""
    if keep is None:
        return x.mean(1)
    real = keep[..., None].to(x.dtype)
    return (x * real).sum(1) / real.sum(1).clamp(min=1)


POOLS = {"first": first, "mean": mean, "last": last, "marked": last}


def _drop(head: nn.Module, x: Tensor, rate: float) -> Tensor:
    """Dropout in training."""
    return F.dropout(x, rate) if rate and head.training else x
