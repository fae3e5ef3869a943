"""Which tokens were replaced: a small model fills masks, the model finds what isn't original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.model.model import Model, build
from anyformer.objectives.base import IGNORED, Batch, Example, Objective, Result, Trainee, inputs
from anyformer.objectives.common import (
    Plan,
    check_encoder,
    check_head,
    check_tokens,
    ends_of,
    pad_of,
    words_of,
)
from anyformer.objectives.losses import asked, hits, sure_sum, token_sum, wide
from anyformer.objectives.masked import Masked, MaskedRows, masker_of
from anyformer.spec.feedforward import FeedForward
from anyformer.spec.node import Above, Rate, node
from anyformer.spec.walk import branches, head_dim

TABLES = ("token", "position", "segment")  # of the embedding: what both models read


@node
class ReplacedToken(Plan):
    """Replaced-token detection (ELECTRA, arXiv:2003.10555): both models learn at once.

    The generator is as deep as the model and `size` times as wide: 1/4 in the paper's small and
    large models, 1/3 in the base one.
    """

    rate: Rate = 0.15  # share of the tokens that are masked; 0.25 in the large model
    mask: Rate = 1.0  # share of those that become the mask token (0.85 in the paper's code)
    size: Above = 0.25  # of the generator: its width, heads and inner width
    weight: Above = 50.0  # of the model's loss, the generator's being 1
    share: bool = True  # both read the same tables of tokens, positions and types
    cross: bool = True  # documents of a row see each other

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head that tells what was replaced."""
        return spec if isinstance(spec.head, S.Detect) else S.override(spec, "head", S.Detect())

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_encoder(spec, self)
        check_head(spec, self, S.Detect)
        masks = Masked(rate=self.rate, mask=self.mask, random=0.0, cross=self.cross)
        masker, ends = masker_of(masks, tokenizer), ends_of(tokenizer)
        rows = MaskedRows(masker, ends, cross=self.cross, pad=pad_of(tokenizer, spec))
        return ReplacedTokens(rows, self, S.check(generator_of(spec, self.size)))


def generator_of(spec: S.Model, size: float) -> S.Model:
    """The spec of a generator: so many times as wide, its tables as wide as the model's own.

    Heads keep their width, so that there are fewer of them.
    """
    wide_heads = [leaf for *_, leaf in branches(spec) if isinstance(leaf, S.Attention)]
    if not wide_heads:
        raise InputError("a generator is made of a model with attention, and this one has none")
    heads = max(1, round(wide_heads[0].heads * size))
    dim = heads * head_dim(wide_heads[0], spec.dim)
    out = S.override(spec, "dim", dim)
    for at, model, _, leaf in branches(spec):
        if isinstance(leaf, FeedForward):
            inner = round((leaf.hidden or 4 * model.dim) * dim / model.dim)
            out = S.override(out, f"{at}.hidden", inner)
            continue
        if not isinstance(leaf, S.Attention):
            continue  # its sizes follow from dim
        few = max(1, round(leaf.heads * size))
        groups = None if leaf.kv_heads is None else max(1, round(leaf.kv_heads * few / leaf.heads))
        for name, value in (("heads", few), ("kv_heads", groups)):
            out = S.override(out, f"{at}.{name}", value)
    width = spec.embed.dim or spec.dim
    out = S.override(out, "embed.dim", None if width == dim else width)
    return S.override(out, "head", words_of(spec))


class Generator(nn.Module):
    """A small masked language model that answers only where it is asked."""

    def __init__(self, spec: S.Model, lender: Model | None):
        super().__init__()
        body = build(spec)
        self.head, body.head = body.head, None
        for name in TABLES if lender is not None else ():
            assert lender is not None
            own, lent = getattr(body.embed, name), getattr(lender.embed, name)
            if own is not None and lent is not None and own.weight.shape == lent.weight.shape:
                setattr(body.embed, name, lent)  # one parameter, read by both
        self.body = body

    def forward(self, given: dict[str, Any], chosen: Tensor) -> Tensor:
        """Logits (R, V) of the R positions of `chosen` (B, N)."""
        hidden = self.body(**given).last_hidden_state
        assert self.head is not None
        return self.head(hidden[chosen], self.body.token_table())


@dataclass
class ReplacedTokens(Objective):
    """Masked rows for the generator, its samples in their place for the model."""

    rows: MaskedRows
    plan: ReplacedToken
    generator: S.Model

    def __post_init__(self) -> None:
        self.pad = self.rows.pad
        self.weights: Mapping[str, float] = {"generator": 1.0, "detection": self.plan.weight}

    def length(self, context: int) -> int:
        """The context without special tokens."""
        return self.rows.length(context)

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A packed row, masked."""
        return self.rows.example(samples, index, rng)

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Rows as tensors."""
        return self.rows.collate(examples)

    def beside(self, model: Model) -> nn.Module:
        """The generator, its tables those of the model."""
        return Generator(self.generator, model if self.plan.share else None)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Masked tokens for the generator, all real ones for the model."""
        return {"generator": asked(batch["labels"]), "detection": real_of(batch).sum()}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """Both sums; the generator learns from its own alone."""
        generator = trainee.beside
        assert isinstance(generator, Generator)
        labels, given, real = batch["labels"], inputs(batch), real_of(batch)
        chosen = labels != IGNORED
        guesses = generator(given, chosen)
        original = torch.where(chosen, labels, batch["input_ids"])
        ids = original.masked_scatter(chosen, sample(guesses))
        replaced = (ids != original).long().masked_fill(~real, IGNORED)
        out = trainee.model(**{**given, "input_ids": ids})
        assert out.logits is not None
        said, is_so = (out.logits > 0) & real, replaced == 1
        losses = {
            "generator": token_sum(guesses, labels[chosen]),
            "detection": sure_sum(out.logits, replaced),
        }
        return Result(
            losses,
            {
                "generator accuracy": hits(guesses, labels[chosen]),
                "accuracy": (((said == is_so) & real).sum(), real.sum()),
                "replaced": (is_so.sum(), real.sum()),
                "precision": ((said & is_so).sum(), said.sum()),
                "recall": ((said & is_so).sum(), is_so.sum()),
            },
        )


@torch.no_grad()
def sample(logits: Tensor) -> Tensor:
    """One class (…) for each row of logits (…, V), by its chance: the largest with Gumbel noise.

    Torch's generator draws it, which training sets anew at each step.
    """
    noise = torch.empty_like(wide(logits)).exponential_()
    return (wide(logits) - noise.log()).argmax(-1)


def real_of(batch: Batch) -> Tensor:
    """Which positions (B, N) aren't padding."""
    mask = batch.get("attention_mask")
    ones = torch.ones_like(batch["input_ids"], dtype=torch.bool)
    return ones if mask is None else mask.bool()
