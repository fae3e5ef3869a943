"""Parallel texts: masked on both sides (XLM), or the one written from the other (M2M-100)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError, known_or_raise
from anyformer.objectives import corrupt
from anyformer.objectives.base import Example, Objective
from anyformer.objectives.common import (
    Ends,
    OfTokens,
    WordPlan,
    answered,
    check_encoder,
    check_head,
    check_pair,
    check_tokens,
    context_of,
    ends_of,
    pad_of,
    whole,
)
from anyformer.objectives.losses import check_alpha
from anyformer.objectives.masked import Masked, Masker, masker_of
from anyformer.objectives.text_to_text import closed, encoded, text_of
from anyformer.spec.node import Above, Positive, Rate, node


@node
class TranslationLM(WordPlan):
    """Two texts that mean the same in one row, tokens of both masked (XLM, arXiv:1901.07291).

    Records have `source` and `target`, and `source_lang` and `target_lang` for models that have
    vectors for languages. The second text's positions begin anew.
    """

    masking: Masked = Masked()
    languages: tuple[str, ...] = ()  # in the order of the model's ids for them
    context: Positive | None = None  # tokens of a row at most; None: the model's positions

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_encoder(spec, self)
        check_head(spec, self, S.Vocabulary)
        if spec.embed.langs and not self.languages:
            raise InputError(
                f"the model has vectors for {spec.embed.langs} languages: name them in the order "
                'of their ids, languages=("en", "fr", …)'
            )
        if spec.embed.langs and len(self.languages) > spec.embed.langs:
            raise InputError(
                f"{len(self.languages)} languages are named and the model has {spec.embed.langs}: "
                "build it with more langs"
            )
        ends, room = ends_of(tokenizer), context_of(spec, self.context)
        if room < 2 * ends.size + 2:
            raise InputError(f"context={room} has no room for two texts: take {2 * ends.size + 2}")
        known = {name: id for id, name in enumerate(self.languages)} if spec.embed.langs else None
        masker = masker_of(self.masking, tokenizer)
        return BothMasked(tokenizer, masker, ends, room, known, pad_of(tokenizer, spec))


@dataclass
class BothMasked(OfTokens):
    """Rows of a text and its translation, each with its ends, masked."""

    tokenizer: Tokenizer
    masker: Masker
    ends: Ends
    room: int
    languages: Mapping[str, int] | None  # ids by name, where the model has vectors for them
    pad: int = 0

    reads = "records"

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """One record's row; the longer text is cut where both are too long."""
        record = samples[index]
        one, two = (whole(self.tokenizer.encode(text_of(record, n))) for n in ("source", "target"))
        texts = corrupt.cut_pair(one, two, self.room - 2 * self.ends.size, rng)
        sides = [self.ends.around(text) for text in texts]
        sizes = [len(side) for side in sides]
        row, labels = self.masker(np.concatenate(sides), rng)
        positions = np.concatenate([np.arange(size) for size in sizes])
        found = {"input_ids": row, "labels": labels, "position_ids": positions}
        if self.languages is not None:
            found["langs"] = np.repeat([self._language(record, n) for n in SIDES], sizes)
        return found

    def collate(self, examples: Any) -> dict[str, Any]:
        """Rows as tensors; what pads them has position and language 0."""
        batch = super().collate(examples)
        if "attention_mask" in batch:
            for name in ("position_ids", "langs"):
                if name in batch:
                    batch[name] = batch[name] * batch["attention_mask"]
        return batch

    def _language(self, record: Mapping[str, Any], name: str) -> int:
        assert self.languages is not None
        code = known_or_raise(text_of(record, name), self.languages, "language", InputError)
        return self.languages[code]


SIDES = ("source_lang", "target_lang")


@node
class Translation(WordPlan):
    """A text in one language from that in another, for many languages (M2M-100, 2010.11125).

    Records have `source` and `target`, and `source_lang` and `target_lang` where the tokenizer has
    tokens for languages: these stand where its family puts them.
    """

    language: str = "__{}__"  # a language's token, where the tokenizer knows no languages itself
    context: Positive | None = None  # tokens of a source at most; None: the model's positions
    answer: Positive | None = None  # tokens of a target at most
    smoothing: Rate = 0.1  # share of the target that all tokens get alike
    alpha: Above = 1.0  # of the loss: 1 cross-entropy, 1.5 entmax, 2 sparsemax (1905.05702)

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_pair(spec, self)
        check_head(spec, self, S.Vocabulary)
        assert spec.encoder is not None
        room = (context_of(spec.encoder, self.context), context_of(spec, self.answer))
        return Translated(self, tokenizer, room, spec.start, pad_of(tokenizer, spec))


@dataclass
class Translated(OfTokens):
    """Records of which the encoder reads the source and the decoder writes the target."""

    plan: Translation
    tokenizer: Tokenizer
    room: tuple[int, int]  # tokens of a source and of a target
    start: int | str | None
    pad: int = 0
    _ends: dict[str, Ends] = field(default_factory=dict)  # of each language

    reads = "records"

    def __post_init__(self) -> None:
        self.smoothing, self.alpha = self.plan.smoothing, check_alpha(self.plan.alpha)

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """One record's two texts with their languages' tokens; longer ones are cut at the end."""
        record = samples[index]
        source, target = (
            encoded(self.tokenizer, text_of(record, name), self.ends(record.get(lang)), room)
            for name, lang, room in zip(("source", "target"), SIDES, self.room, strict=True)
        )
        return answered(source, target, self.start)

    def ends(self, language: str | None) -> Ends:
        """What stands around a text of a language; of none, what stands around any."""
        key = language or ""
        if key not in self._ends:
            self._ends[key] = self._around(key)
        return self._ends[key]

    def _around(self, language: str) -> Ends:
        plain = closed(ends_of(self.tokenizer), self.tokenizer)
        if not language:
            return plain
        try:
            return closed(ends_of(self.tokenizer.with_languages(language)), self.tokenizer)
        except InputError as error:
            token = self.tokenizer.id(self.plan.language.format(language))
            if token is None:
                raise InputError(
                    f"the tokenizer has no token for the language {language!r}: add "
                    f"{self.plan.language.format(language)!r} to it, name its form with "
                    "language=…, or leave the languages out of the records"
                ) from error
        return Ends(whole([token]), whole(self.tokenizer.need("eos")))
