"""Text in, text out: one encoder-decoder for many tasks, told apart by what stands in front."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.objectives.base import Example, Objective
from anyformer.objectives.common import (
    Ends,
    OfTokens,
    WordPlan,
    answered,
    check_head,
    check_pair,
    check_tokens,
    context_of,
    ends_of,
    pad_of,
    whole,
)
from anyformer.objectives.losses import check_alpha
from anyformer.spec.node import Above, Positive, Rate, node


@node
class TextToText(WordPlan):
    """A task's name and its input in, its answer out, as text (T5, arXiv:1910.10683).

    Records have `input` and `target`, and `task`, which the prefix names.
    """

    prefix: str = "{task}: "  # in front of the input, where a record names its task
    input: str = "input"  # the field that is read
    target: str = "target"  # the field that is written
    context: Positive | None = None  # tokens of an input at most; None: the model's positions
    answer: Positive | None = None  # tokens of a target at most
    smoothing: Rate = 0.0  # share of the target that all tokens get alike
    alpha: Above = 1.0  # of the loss: 1 cross-entropy, 1.5 entmax, 2 sparsemax (1905.05702)

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        check_tokens(spec, tokenizer)
        check_pair(spec, self)
        check_head(spec, self, S.Vocabulary)
        assert spec.encoder is not None
        room = (context_of(spec.encoder, self.context), context_of(spec, self.answer))
        ends = closed(ends_of(tokenizer), tokenizer)
        return Answered(self, tokenizer, ends, room, spec.start, pad_of(tokenizer, spec))


def closed(ends: Ends, tokenizer: Tokenizer) -> Ends:
    """Ends with an end of text behind: the tokenizer's `eos` where its template has none."""
    return ends if len(ends.back) else Ends(ends.front, whole(tokenizer.need("eos")))


@dataclass
class Answered(OfTokens):
    """Records of which the encoder reads the input and the decoder writes the target."""

    plan: TextToText
    tokenizer: Tokenizer
    ends: Ends
    room: tuple[int, int]  # tokens of an input and of a target
    start: int | str | None
    pad: int = 0

    reads = "records"

    def __post_init__(self) -> None:
        self.smoothing, self.alpha = self.plan.smoothing, check_alpha(self.plan.alpha)

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """One record's two texts; longer ones are cut at the end."""
        record, plan = samples[index], self.plan
        task = record.get("task")
        front = plan.prefix.format(task=task) if task else ""
        source = encoded(
            self.tokenizer, front + text_of(record, plan.input), self.ends, self.room[0]
        )
        target = encoded(self.tokenizer, text_of(record, plan.target), self.ends, self.room[1])
        return answered(source, target, self.start)


def encoded(tokenizer: Tokenizer, text: str, ends: Ends, room: int) -> np.ndarray:
    """The ids of a text with its ends, `room` of them at most."""
    return ends.around(whole(tokenizer.encode(text))[: max(0, room - ends.size)])


def text_of(record: Mapping[str, Any], name: str) -> str:
    """A text of a record."""
    found = record.get(name)
    if not isinstance(found, str):
        has = ", ".join(map(str, record))
        raise InputError(f"a record needs a text {name!r}; this one has {has or 'nothing'}")
    return found


def by_task(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Records by their field `task`, in order; "" holds those without one."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(str(record.get("task") or ""), []).append(record)
    return found


def mixing_rates(
    sizes: Mapping[str, int], limit: Above, temperature: Above = 1.0
) -> dict[str, float]:
    """How often to read each task: by its size, cut at `limit`, to the power 1/temperature.

    T5 mixes in proportion to sizes up to a limit of 2¹⁹ to 2²¹ (arXiv:1910.10683, section 3.5.2);
    a temperature of 2 with a large limit is what multilingual BERT did.
    """
    if not sizes or any(size <= 0 for size in sizes.values()):
        raise InputError("mixing needs tasks with one record at least in each")
    parts = {task: min(size, limit) ** (1 / temperature) for task, size in sizes.items()}
    total = sum(parts.values())
    return {task: part / total for task, part in parts.items()}
