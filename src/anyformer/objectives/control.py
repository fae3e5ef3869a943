"""Control codes: each text behind the name of where it comes from (CTRL)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from anyformer import spec as S
from anyformer.data.samples import Sample, Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.objectives.base import Example, Objective
from anyformer.objectives.common import (
    OfTokens,
    WordPlan,
    check_decoder,
    check_head,
    check_tokens,
    context_of,
    ignored,
    pad_of,
    whole,
)
from anyformer.spec.node import Positive, node

TRIES = 100  # documents that are looked at for one with text


@node
class ControlCodes(WordPlan):
    """Each token of a text from those before it and from a code in front (arXiv:1909.05858).

    The code is the document's name; a row is a random window of the document behind it.
    """

    code: str = ""  # of documents without a name; "": they are refused
    context: Positive | None = None  # tokens of a row; None: the model's positions

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_decoder(spec, self)
        check_head(spec, self, S.Vocabulary, S.Adaptive)
        return Coded(self, tokenizer, context_of(spec, self.context), pad_of(tokenizer, spec))


@dataclass
class Coded(OfTokens):
    """Windows of documents behind their codes."""

    plan: ControlCodes
    tokenizer: Tokenizer
    context: int
    pad: int = 0
    _codes: dict[str, np.ndarray] = field(default_factory=dict)  # ids by name

    reads = "documents"

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A window of a document; its code is read, and not asked for."""
        sample = self._some(samples, index)
        code, ids = self.ids_of(sample.get("name") or self.plan.code), whole(sample["ids"])
        room = self.context + 1 - len(code)
        if room < 2:
            raise InputError(f"a code of {len(code)} tokens leaves no room in {self.context}")
        start = int(rng.integers(max(1, len(ids) - room + 1)))
        row = np.concatenate([code, ids[start : start + room]])
        labels = np.concatenate([ignored(len(code) - 1), row[len(code) :]])
        return {"input_ids": row[: len(labels)], "labels": labels}

    def _some(self, samples: Samples, index: int) -> Sample:
        """The sample at an index; where its document is empty, the next that isn't."""
        for at in range(index, index + TRIES):
            sample = samples[at]
            if len(sample["ids"]):
                return sample
        raise InputError("the documents are empty: a token of text is needed behind a code")

    def ids_of(self, name: str) -> np.ndarray:
        """The ids of a code."""
        if not name:
            raise InputError(
                "a document has no name to serve as its control code: prepare the data from "
                "named sources, or give code=… for those without"
            )
        if name not in self._codes:
            self._codes[name] = whole(self.tokenizer.encode(name))
            if not len(self._codes[name]):
                raise InputError(f"the control code {name!r} has no tokens in this tokenizer")
        return self._codes[name]
