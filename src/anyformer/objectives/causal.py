"""The next token: packed rows whose documents don't see each other, and rows with a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.objectives.base import IGNORED, Batch, Example, Objective, collate
from anyformer.objectives.common import (
    OfTokens,
    WordPlan,
    answered,
    check_decoder,
    check_head,
    check_pair,
    check_tokens,
    pad_of,
    whole,
)
from anyformer.objectives.losses import check_alpha
from anyformer.spec.node import Above, Rate, node


@node
class Causal(WordPlan):
    """Each token from those before it, in rows packed without padding (GPT)."""

    cross: bool = False  # documents of a row see each other, as in GPT-2
    smoothing: Rate = 0.0  # share of the target that all tokens get alike
    alpha: Above = 1.0  # of the loss: 1 cross-entropy, 1.5 entmax, 2 sparsemax (1905.05702)

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_decoder(spec, self)
        check_head(spec, self, S.Vocabulary, S.Adaptive)
        _check_documents(spec, self.cross)
        alpha = check_alpha(self.alpha)
        return NextToken(self.cross, self.smoothing, pad_of(tokenizer, spec), alpha)


@node
class PrefixLM(WordPlan):
    """The rest of a row from a beginning of random length, seen from both sides (1910.10683).

    An encoder-decoder reads the beginning and writes the rest.
    """

    cross: bool = False  # documents of a row see each other
    shortest: Rate = 0.0  # the least share of a row that is its beginning ...
    longest: Rate = 1.0  # ... and the greatest; a token is on each side in any case

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_head(spec, self, S.Vocabulary, S.Adaptive)
        if self.shortest > self.longest:
            raise InputError(f"shortest={self.shortest} is more than longest={self.longest}: swap")
        pad = pad_of(tokenizer, spec)
        if spec.encoder is not None:
            check_pair(spec, self)
            return Continued(self.shortest, self.longest, spec.start, pad)
        check_decoder(spec, self)
        _check_documents(spec, self.cross)
        return AfterPrefix(self.cross, 0.0, pad, 1.0, self.shortest, self.longest)


def _check_documents(spec: S.Model, cross: bool) -> None:
    if spec.embed.memory and not cross:
        raise InputError(
            "memory tokens are seen by all documents of a row: take cross=True, or embed.memory=0"
        )


@dataclass
class NextToken(OfTokens):
    """Rows of one token more than the context: read all but the last, answer all but the first."""

    cross: bool
    smoothing: float = 0.0
    pad: int = 0
    alpha: float = 1.0

    def length(self, context: int) -> int:
        """One token more: the last one is an answer only."""
        return context + 1

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A packed row; where a document ends, the next one's first token isn't asked for."""
        sample = samples[index]
        ids, documents = whole(sample["ids"]), whole(sample["documents"])
        found = {"input_ids": ids[:-1], "labels": ids[1:].copy()}
        if not self.cross:
            found["labels"][documents[1:] != documents[:-1]] = IGNORED
            found["document_ids"] = documents[:-1]
        return found

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Rows as tensors; without document_ids where each row is one document."""
        batch = collate(examples, self.pad)
        if "document_ids" in batch and not bool(batch["document_ids"].any()):
            del batch["document_ids"]
        return batch


@dataclass
class AfterPrefix(NextToken):
    """Rows whose first tokens are seen from both sides and aren't answers."""

    shortest: float = 0.0
    longest: float = 1.0

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A packed row, cut in two at a random place."""
        found = super().example(samples, index, rng)
        cut = _cut(len(found["labels"]) + 1, self.shortest, self.longest, rng)
        found["labels"][: cut - 1] = IGNORED
        if (found["labels"] == IGNORED).all():  # the rest is a document's first token
            found["labels"][-1] = whole(samples[index]["ids"])[-1]
        return {**found, "prefix_lengths": np.array(cut)}


@dataclass
class Continued(OfTokens):
    """The beginning of a row for the encoder, the rest for the decoder."""

    shortest: float
    longest: float
    start: int | str | None
    pad: int = 0

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A row cut in two at a random place."""
        ids = whole(samples[index]["ids"])
        cut = _cut(len(ids), self.shortest, self.longest, rng)
        return answered(ids[:cut], ids[cut:], self.start)


def _cut(length: int, shortest: float, longest: float, rng: np.random.Generator) -> int:
    """How many of `length` tokens come first: one at least, and one is left."""
    low = min(max(1, round(shortest * length)), length - 1)
    high = min(max(low, round(longest * length)), length - 1)
    return int(rng.integers(low, high + 1))
