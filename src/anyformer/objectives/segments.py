"""The next token in long rows, read a segment at a time with a memory of those before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.objectives.base import Batch, Example, Objective, Result, Trainee
from anyformer.objectives.common import (
    OfTokens,
    WordPlan,
    check_decoder,
    check_head,
    check_tokens,
    pad_of,
    whole,
)
from anyformer.objectives.losses import hits, token_sum
from anyformer.spec.node import Natural, Positive, Rate, node


@node
class Segments(WordPlan):
    """Each token from those before it, in rows of several segments (Transformer-XL, 1901.02860).

    A segment is as long as the context. It sees the memory that those before it in the row left,
    through which no gradient flows; a row begins without one, so that nothing is kept between
    steps. Evaluation may remember more or less than training, and let every position see as many.
    """

    segments: Positive = 4  # of a row
    memory: Natural | None = None  # positions remembered in training; None: stack.recurrence
    eval_memory: Natural | None = None  # in evaluation; None: as in training
    same_length: bool = False  # in evaluation each position sees eval_memory keys, itself included
    smoothing: Rate = 0.0  # share of the target that all tokens get alike

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_decoder(spec, self)
        check_head(spec, self, S.Vocabulary, S.Adaptive)
        if self.memory is None and not spec.stack.recurrence:
            raise InputError(
                "this model remembers no segments: set stack.recurrence, or memory=… here (0 reads "
                "each segment alone)"
            )
        memory = spec.stack.recurrence if self.memory is None else self.memory
        later = memory if self.eval_memory is None else self.eval_memory
        if self.same_length and not later:
            raise InputError("same_length sees eval_memory keys, which is 0: set eval_memory")
        pad = pad_of(tokenizer, spec)
        return InTurn(self.segments, memory, later, self.same_length, self.smoothing, pad)


@dataclass
class InTurn(OfTokens):
    """Rows of one token more than all segments; documents of a row see each other."""

    exits = False
    segments: int
    memory: int
    eval_memory: int
    same_length: bool = False
    smoothing: float = 0.0
    pad: int = 0

    def length(self, context: int) -> int:
        """As many contexts as segments, and one token that is an answer only."""
        return self.segments * context + 1

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A row, whose segments are cut later."""
        ids = whole(samples[index]["ids"])
        return {"input_ids": ids[:-1], "labels": ids[1:].copy()}

    def placed(self, batch: Batch) -> Batch:
        """As it is: segments are cut out of it, each with places of its own."""
        return batch

    def pieces(self, batch: Batch) -> Sequence[Batch]:
        """The segments (B, N), the first without a memory."""
        size = -(-batch["input_ids"].shape[1] // self.segments)
        cut = {name: x.split(size, 1) for name, x in batch.items()}
        begun: dict[str, Any] = {"mems": None}
        return [begun | {k: v[i] for k, v in cut.items()} for i in range(len(cut["input_ids"]))]

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """The sum of cross-entropies over a segment, or over all of a row that isn't cut yet."""
        if "mems" in batch:
            return self._segment(trainee, dict(batch))
        found: list[Result] = []
        for piece in self.pieces(batch):
            found.append(self._segment(trainee, {**piece, **(found[-1].carry if found else {})}))
        added = lambda each: torch.stack([each(result) for result in found]).sum()
        pair = added(lambda r: r.metrics["accuracy"][0]), added(lambda r: r.metrics["accuracy"][1])
        return Result({"tokens": added(lambda r: r.losses["tokens"])}, {"accuracy": pair})

    def _segment(self, trainee: Trainee, batch: Batch) -> Result:
        labels, mems = batch.pop("labels"), batch.pop("mems")
        limit = self.memory if trainee.training else self.eval_memory
        same = self.same_length and not trainee.training
        asked = {"mem_len": limit, "return_mems": True, "same_length": same} if limit else {}
        out = trainee.model(**batch, **asked, **({} if mems is None else {"mems": mems}))
        assert out.logits is not None
        loss = token_sum(out.logits, labels, self.smoothing)
        told = {"accuracy": hits(out.logits, labels)} if trainee.metrics else {}
        return Result({"tokens": loss}, told, {"mems": out.mems})
