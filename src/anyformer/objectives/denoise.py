"""Denoising: BART reads a row whose text was spoilt and writes it as it was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.objectives import corrupt
from anyformer.objectives.base import Example, Objective
from anyformer.objectives.common import (
    Ends,
    Marks,
    OfTokens,
    WordPlan,
    answered,
    check_head,
    check_pair,
    check_tokens,
    ends_of,
    pad_of,
    special_table,
    whole,
    word_marks,
)
from anyformer.spec.node import Above, Rate, node

STOPS = (".", "!", "?", "。")


@node
class Denoising(WordPlan):
    """Text spoilt in one way or several, to be restored (BART, arXiv:1910.13461).

    The defaults are the paper's best: spans filled with one mask each, sentences in random order.
    """

    infill: Rate = 0.3  # share of the tokens in spans of which each becomes one mask
    mean: Above = 3.0  # of their Poisson lengths; one of no length puts a mask in
    permute: Rate = 1.0  # how often the sentences of documents are shuffled
    mask: Rate = 0.0  # share of the tokens that become masks
    delete: Rate = 0.0  # share of the tokens that are left out
    rotate: Rate = 0.0  # how often a row begins at a random token
    whole_words: bool = False  # spans are of words, their rate too

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_pair(spec, self)
        check_head(spec, self, S.Vocabulary)
        mask = tokenizer.need("mask")[0] if self.infill or self.mask else -1
        ends = ends_of(tokenizer)
        if not len(ends.back):
            raise InputError(
                "this tokenizer ends texts with no token, so a decoder wouldn't know when to stop: "
                'give it an end, tokenizer.with_roles(bos="...", eos="...")'
            )
        tokens = [(tokenizer.token(id) or "").removesuffix("</w>") for id in range(len(tokenizer))]
        stops = np.array([token.endswith(STOPS) for token in tokens], bool)
        marks = word_marks(tokenizer) if self.whole_words else None
        noise = Noise(self, mask, stops, special_table(tokenizer), marks)
        return Restored(noise, ends, spec.start, pad_of(tokenizer, spec))


@dataclass(frozen=True)
class Noise:
    """Spoils rows as a `Denoising` says; special tokens inside them stay."""

    plan: Denoising
    mask: int
    stops: np.ndarray  # (V,) which ids end a sentence
    special: np.ndarray  # (V,)
    marks: Marks | None = None

    def __call__(
        self, ids: np.ndarray, documents: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """A row (N,) of documents (N,) as the encoder reads it."""
        plan = self.plan
        if plan.permute and rng.random() < plan.permute:
            ids = corrupt.permuted(ids, self.ends(ids), documents, rng)
        if plan.infill:
            ids = self.filled(ids, rng)
        if plan.mask:
            ids = ids.copy()
            ids[self.some(ids, plan.mask, rng)] = self.mask
        if plan.delete:
            ids = np.delete(ids, self.some(ids, plan.delete, rng))
        if plan.rotate and rng.random() < plan.rotate:
            ids = corrupt.rotated(ids, rng)
        return ids

    def ends(self, ids: np.ndarray) -> np.ndarray:
        """Which tokens (N,) are the last of a sentence: the last of the stops in a row."""
        stop = self.stops[ids] | self.special[ids]
        return stop & ~np.append(stop[1:], False)

    def some(self, ids: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
        """A share of the places that hold no special token."""
        free = np.flatnonzero(~self.special[ids])
        if not len(free):
            return free
        return rng.choice(free, corrupt.share(len(free), rate, rng), replace=False, shuffle=False)

    def filled(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A row with masks for spans of Poisson lengths; it never becomes longer."""
        places = np.flatnonzero(~self.special[ids])
        offsets = np.arange(len(places) + 1)
        if self.marks is not None and len(places):
            starts = self.marks.starts(ids[places])
            offsets = np.append(np.flatnonzero(starts), len(places))
        words = len(offsets) - 1
        budget = corrupt.share(words, self.plan.infill, rng)
        lengths = corrupt.filling(budget, corrupt.poisson(self.plan.mean), rng)
        if len(lengths) > budget:  # more masks than words that go: drop some of no length
            lengths = np.delete(lengths, np.flatnonzero(lengths == 0)[: len(lengths) - budget])
        starts = corrupt.arranged(lengths, words, rng)
        first, lengths = corrupt.in_tokens(offsets, starts, lengths)
        at = np.append(places, len(ids))[first]
        return corrupt.infilled(ids, places[corrupt.covered(first, lengths)], at, self.mask)


@dataclass
class Restored(OfTokens):
    """Rows of which the encoder reads a spoilt copy and the decoder writes the original."""

    noise: Noise
    ends: Ends
    start: int | str | None
    pad: int = 0

    def length(self, context: int) -> int:
        """The context without the special tokens."""
        if context <= self.ends.size:
            raise InputError(f"a context of {context} has no room beside the special tokens")
        return context - self.ends.size

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A row spoilt, and as it was."""
        sample = samples[index]
        ids, documents = whole(sample["ids"]), whole(sample["documents"])
        spoilt = self.noise(ids, documents, rng)
        return answered(self.ends.around(spoilt), self.ends.around(ids), self.start)
