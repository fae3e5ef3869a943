"""Span corruption: T5's encoder reads a row with sentinels for spans, its decoder writes these."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, takewhile

import numpy as np

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.objectives import corrupt
from anyformer.objectives.base import Example, Objective
from anyformer.objectives.common import (
    OfTokens,
    WordPlan,
    answered,
    check_head,
    check_pair,
    check_tokens,
    pad_of,
    whole,
)
from anyformer.spec.node import Above, Rate, node


@node
class SpanCorruption(WordPlan):
    """Spans taken out of a row, each with its own sentinel (T5, arXiv:1910.10683).

    The paper ends what is to be written with one more sentinel, its code with the end token, as
    here.
    """

    rate: Rate = 0.15  # share of the tokens that are taken out, exact in every row
    mean: Above = 3.0  # length of a span
    sentinel: str = "<extra_id_{}>"  # the tokens that stand for spans, numbered from 0

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_pair(spec, self)
        check_head(spec, self, S.Vocabulary)
        if self.mean < 1:
            raise InputError(f"mean={self.mean}: a span has one token at least")
        (end,) = tokenizer.need("eos")
        named = (tokenizer.id(self.sentinel.format(i)) for i in count())
        sentinels = whole([id for id in takewhile(lambda id: id is not None, named)])
        if not len(sentinels):
            raise InputError(
                f"the tokenizer has no sentinel {self.sentinel.format(0)!r}: add such tokens to "
                "its vocabulary, as T5's has, or name its own with sentinel=…"
            )
        return TakenSpans(self, sentinels, end, spec.start, pad_of(tokenizer, spec))


@dataclass
class TakenSpans(OfTokens):
    """Rows of which the encoder reads what is left and the decoder writes what is gone."""

    plan: SpanCorruption
    sentinels: np.ndarray
    end: int
    start: int | str | None
    pad: int = 0

    def lengths(self, tokens: int) -> tuple[int, int]:
        """What the encoder reads and the decoder writes of a row of so many tokens."""
        noise, spans = corrupt.noise_counts(tokens, self.plan.rate, self.plan.mean)
        return tokens - noise + spans + 1, noise + spans + 1

    def length(self, context: int) -> int:
        """The longest row that fills the encoder's context; 568 for 512, with 114 to write."""
        if context < 3:
            raise InputError(f"a context of {context} is too short for spans: take 3 at least")
        tokens = 2
        while self.lengths(tokens + 1)[0] <= context:
            tokens += 1
            if tokens > 100 * context:
                raise InputError(f"rate={self.plan.rate} leaves nothing to read: take less")
        spans = corrupt.noise_counts(tokens, self.plan.rate, self.plan.mean)[1]
        if spans > len(self.sentinels):
            raise InputError(
                f"rows of {tokens} tokens have {spans} spans, and there are {len(self.sentinels)} "
                "sentinels: take a shorter context, a greater mean, or add sentinel tokens"
            )
        return tokens

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A row in its two parts, each with the end token."""
        ids = whole(samples[index]["ids"])
        if len(ids) < 2:
            raise InputError("a row of one token can't be corrupted: two are needed at least")
        spans = corrupt.noise_spans(len(ids), self.plan.rate, self.plan.mean, rng)
        source, target = corrupt.split_spans(ids, spans, self.sentinels)
        return answered(np.append(source, self.end), np.append(target, self.end), self.start)
