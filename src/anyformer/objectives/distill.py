"""A small model that learns from a trained one: its chances, its states and the text itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.checkpoint import load
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.model.model import Model
from anyformer.model.output import Output
from anyformer.objectives.base import Batch, Example, Objective, Result, Trainee, inputs
from anyformer.objectives.causal import Causal
from anyformer.objectives.common import Plan
from anyformer.objectives.losses import asked, cosine_sum, hits, soft_sum, token_sum
from anyformer.objectives.masked import Masked
from anyformer.objectives.replaced import real_of
from anyformer.spec.node import Above, Range, node

Weight = Annotated[float, Range(0.0)]
BLOCK = re.compile(r"^stack\.blocks\.(\d+)\.")


@node
class Distillation(Plan):
    """Soft targets, masked tokens and the angle of states (DistilBERT, arXiv:1910.01108)."""

    teacher: str | None = None  # the folder of a model with a head over the same vocabulary
    of: Masked | Causal = Masked()  # what the rows are and what is asked of them
    temperature: Above = 2.0  # both sides' logits are divided by it for soft targets
    soft: Weight = 5.0  # weights of the terms; without weight a term isn't computed
    hard: Weight = 2.0
    cosine: Weight = 1.0
    begin: bool = False  # the student begins with every other layer of the teacher's

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head over its vocabulary."""
        return self.of.fit(spec)

    def bind(
        self, tokenizer: Tokenizer, spec: S.Model, teacher: Model | None = None
    ) -> DistilledRows:
        """The objective at work, with a teacher that is given, else that of the folder."""
        found = teacher if teacher is not None else self.teacher
        if found is None:
            raise InputError('distillation needs a teacher: Distillation(teacher="folder")')
        return DistilledRows(self.of.bind(tokenizer, spec), self, found)


class Teacher(nn.Module):
    """A frozen model that is no part of what is trained: it has no parameters and no state here."""

    def __init__(self, model: Model):
        super().__init__()
        self.held = (model.eval().requires_grad_(False),)  # in a tuple: not a submodule

    @torch.no_grad()
    def forward(self, **given: Any) -> Output:
        """What the teacher says, on the device of what it is given."""
        device = next(value.device for value in given.values() if isinstance(value, Tensor))
        return self.held[0].to(device)(**given)


@dataclass
class DistilledRows(Objective):
    """The rows of another objective, answered by model and teacher."""

    of: Objective
    plan: Distillation
    teacher: Model | str

    def __post_init__(self) -> None:
        self.pad = self.of.pad
        plan = self.plan
        weights = {"soft": plan.soft, "hard": plan.hard, "cosine": plan.cosine}
        self.weights: Mapping[str, float] = {k: v for k, v in weights.items() if v}

    def length(self, context: int) -> int:
        """As the other objective has it."""
        return self.of.length(context)

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """As the other objective has it."""
        return self.of.example(samples, index, rng)

    def collate(self, examples: Sequence[Example]) -> Batch:
        """As the other objective has it."""
        return self.of.collate(examples)

    def beside(self, model: Model) -> nn.Module:
        """The teacher, frozen."""
        teacher = load(self.teacher) if isinstance(self.teacher, str) else self.teacher
        _check(teacher.spec, model.spec, self.plan)
        if self.plan.begin:
            initialise(model, teacher)
        return Teacher(teacher)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Real positions, and labels for the term of the text itself."""
        real = real_of(batch).sum()
        every = {"soft": real, "hard": asked(batch["labels"]), "cosine": real}
        return {name: every[name] for name in self.weights}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """The sums of the terms that have a weight."""
        given, real, labels = inputs(batch), real_of(batch), batch["labels"]
        out = trainee.model(**given)
        assert trainee.beside is not None and out.logits is not None
        told: Output = trainee.beside(**given)
        wanted = told.logits if told.logits is not None else told.prediction_logits
        states = told.last_hidden_state
        assert wanted is not None and states is not None
        every = {
            "soft": lambda: soft_sum(out.logits, wanted, self.plan.temperature, real),
            "hard": lambda: token_sum(out.logits, labels),
            "cosine": lambda: cosine_sum(out.last_hidden_state, states, real),
        }
        metrics = {
            "accuracy": hits(out.logits, labels),
            "teacher accuracy": hits(wanted, labels),
        }
        return Result({name: every[name]() for name in self.weights}, metrics)


def _check(teacher: S.Model, student: S.Model, plan: Distillation) -> None:
    """Raise unless both answer over one vocabulary, with states that can be compared."""
    if not isinstance(teacher.head, S.Vocabulary | S.Adaptive | S.Pretraining):
        raise InputError(
            "the teacher has no head over its vocabulary: take a folder with one, such as that of "
            "BertForMaskedLM"
        )
    sizes = [
        m.embed.source.vocab for m in (teacher, student) if isinstance(m.embed.source, S.Tokens)
    ]
    if len(set(sizes)) != 1:
        raise InputError(f"teacher and student need one vocabulary, not {sizes} tokens")
    if plan.cosine and teacher.dim != student.dim:
        raise InputError(
            f"states of widths {teacher.dim} and {student.dim} have no angle: set cosine=0, or "
            f"dim={teacher.dim} in the student"
        )


def initialise(
    student: Model, teacher: Model, layers: Sequence[int] | None = None
) -> tuple[str, ...]:
    """Give a student the teacher's weights, some layers left out; returns what it has none for.

    `layers` are the teacher's for each of the student's; by default one out of two where it has
    half as many, evenly spread in general.
    """
    ours, theirs = len(student.stack.blocks), len(teacher.stack.blocks)
    taken = list(layers) if layers is not None else [i * theirs // ours for i in range(ours)]
    if len(taken) != ours or not all(0 <= i < theirs for i in taken):
        raise InputError(f"layers={taken}: name {ours} of the teacher's layers 0..{theirs - 1}")
    given, fresh = teacher.state_dict(), list[str]()
    moved = lambda match: f"stack.blocks.{taken[int(match[1])]}."
    with torch.no_grad():
        for name, value in student.state_dict().items():
            source = given.get(BLOCK.sub(moved, name))
            if source is None:
                fresh.append(name)
            elif source.shape != value.shape:
                raise InputError(
                    f"{name} is {tuple(value.shape)} in the student and {tuple(source.shape)} in "
                    "the teacher: give both the same widths, or train from fresh weights"
                )
            else:
                value.copy_(source)
    return tuple(fresh)
