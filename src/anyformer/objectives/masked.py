"""Masked tokens: single ones, whole words, n-grams and spans; static or drawn anew."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from anyformer import spec as S
from anyformer.data.order import generator
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.objectives import corrupt
from anyformer.objectives.base import Batch, Example, Objective, collate
from anyformer.objectives.common import (
    Ends,
    Marks,
    OfTokens,
    WordPlan,
    check_encoder,
    check_head,
    check_tokens,
    ends_of,
    ignored,
    pad_of,
    special_table,
    whole,
    word_marks,
)
from anyformer.spec.node import Positive, Rate, node

MASK, OTHER = 0, 1  # fates of a chosen token


@node
class Masked(WordPlan):
    """Some tokens hidden, to be found from both sides (BERT, arXiv:1810.04805).

    RoBERTa draws new ones each time (1907.11692). ALBERT takes n-grams of whole words with
    chances ∝ 1/n up to 3 (1909.11942), SpanBERT spans of geometric length up to 10, each with one
    fate for all its tokens (1907.10529).
    """

    rate: Rate = 0.15  # share of the tokens that are asked for
    mask: Rate = 0.8  # of these become the mask token,
    random: Rate = 0.1  # these another token, the others stay
    dynamic: bool = True  # False: a row that comes again is masked as before
    unit: Literal["token", "word"] = "token"
    spans: Literal["one", "ngram", "geometric"] = "one"  # how many units in a row
    longest: Positive = 3  # of them
    p: Rate = 0.2  # of geometric lengths
    together: bool = False  # the tokens of a span have one fate
    cross: bool = True  # documents of a row see each other, as in RoBERTa

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_encoder(spec, self)
        check_head(spec, self, S.Vocabulary)
        masker, pad = masker_of(self, tokenizer), pad_of(tokenizer, spec)
        return MaskedRows(masker, ends_of(tokenizer), self.cross, pad)


# Whole words, n-grams and spans as their papers have them.
WHOLE_WORDS = Masked(unit="word")
NGRAMS = Masked(unit="word", spans="ngram", longest=3)
GEOMETRIC = Masked(unit="word", spans="geometric", longest=10, together=True)


@dataclass(frozen=True)
class Masker:
    """Hides tokens of rows as a `Masked` says; special tokens never."""

    plan: Masked
    mask: int  # the mask token's id
    special: np.ndarray  # (V,) which ids are special
    marks: Marks | None = None  # where words begin, for whole ones
    others: np.ndarray = field(init=False)  # ids that may stand in for a token

    def __post_init__(self) -> None:
        object.__setattr__(self, "others", np.flatnonzero(~self.special))

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """A row (N,) as the model reads it, and its labels (N,), IGNORED where nothing is asked."""
        plan = self.plan
        if not plan.dynamic:
            rng = generator(zlib.crc32(ids.tobytes()), len(ids))
        row, labels = ids.copy(), ignored(len(ids))
        places = np.flatnonzero(~self.special[ids])
        if not len(places) or not plan.rate:
            return row, labels
        if self.marks is None and plan.spans == "one":  # mostly, so without what spans ask for
            budget = corrupt.share(len(places), plan.rate, rng)
            chosen = places[corrupt.singles(len(places), budget, rng)]
            fate = corrupt.fates(budget, plan.mask, plan.random, rng)
        else:
            starts, lengths = self.spans(ids[places], rng)
            chosen = places[corrupt.covered(starts, lengths)]
            drawn = len(starts if plan.together else chosen)
            fate = corrupt.fates(drawn, plan.mask, plan.random, rng)
            fate = np.repeat(fate, lengths) if plan.together else fate
        labels[chosen] = ids[chosen]
        row[chosen[fate == MASK]] = self.mask
        swapped = chosen[fate == OTHER]
        row[swapped] = self.others[rng.integers(len(self.others), size=len(swapped))]
        return row, labels

    def spans(self, ids: np.ndarray, rng: np.random.Generator) -> corrupt.Spans:
        """Starts and lengths of what is chosen in a row without special tokens."""
        plan, count = self.plan, len(ids)
        budget = corrupt.share(count, plan.rate, rng)
        if self.marks is None:
            offsets = np.arange(count + 1)
        else:
            offsets = np.append(np.flatnonzero(self.marks.starts(ids)), count)
        lengths = {
            "one": lambda: None,
            "ngram": lambda: corrupt.ngrams(plan.longest),
            "geometric": lambda: corrupt.geometric(plan.p, plan.longest),
        }[plan.spans]()
        return corrupt.spans_of_words(offsets, budget, lengths, rng)


def masker_of(plan: Masked, tokenizer: Tokenizer) -> Masker:
    """What hides tokens as a plan says; raises where a tokenizer lacks a mask or marks of words."""
    if plan.mask + plan.random > 1 + 1e-9:
        raise InputError(
            f"mask={plan.mask} and random={plan.random} are shares of the chosen tokens: "
            "their sum can't be more than 1"
        )
    if plan.spans == "geometric" and plan.p == 1.0 and plan.longest > 1:
        raise InputError('p=1 gives spans of one unit: take spans="one", or a smaller p')
    (mask,) = tokenizer.need("mask")
    marks = word_marks(tokenizer) if plan.unit == "word" else None
    return Masker(plan, mask, special_table(tokenizer), marks)


@dataclass
class MaskedRows(OfTokens):
    """Packed rows with the tokenizer's special tokens at both ends."""

    masker: Masker
    ends: Ends
    cross: bool = True
    pad: int = 0

    def length(self, context: int) -> int:
        """The context without the special tokens."""
        if context <= self.ends.size:
            raise InputError(
                f"a context of {context} has no room beside {self.ends.size} special tokens: "
                f"take {self.ends.size + 1} at least"
            )
        return context - self.ends.size

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A packed row, masked."""
        sample = samples[index]
        row, labels = self.masker(self.ends.around(whole(sample["ids"])), rng)
        found = {"input_ids": row, "labels": labels}
        if not self.cross:
            sizes = (len(self.ends.front), len(self.ends.back))
            found["document_ids"] = np.pad(whole(sample["documents"]), sizes, mode="edge")
        return found

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Rows as tensors; without document_ids where each row is one document."""
        batch = collate(examples, self.pad)
        if "document_ids" in batch and not bool(batch["document_ids"].any()):
            del batch["document_ids"]
        return batch
