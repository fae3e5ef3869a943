"""Fine-tuning: a model or a recipe, records and a task to a run with scores at its end."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint import hub, load, swap
from anyformer.checkpoint.tokenizer import tokenizer as tokenizer_of
from anyformer.data import registry
from anyformer.data.samples import Records
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.model.model import Model
from anyformer.objectives.about import pixels_in
from anyformer.objectives.choose import Chosen
from anyformer.objectives.classify import Classification, OfClasses
from anyformer.objectives.heads import head_for
from anyformer.objectives.image import Captioning, ImageClassification
from anyformer.objectives.registry import default_for, name_of, objective
from anyformer.objectives.task import Record, Task, field_of
from anyformer.recipes.registry import RECIPES, options, recipe
from anyformer.recipes.sizes import SIZES
from anyformer.spec.node import names
from anyformer.train import begin, ranks, run, score
from anyformer.train.material import OnBad, RecordSource, shared, spread
from anyformer.train.settings import AdamW, Evaluation, LinearDecay, Saving, Settings
from anyformer.train.works import (
    Labelled,
    Work,
    is_native,
    kind_of,
    labels_for,
    labels_in,
    labels_there,
    work_of,
)

log = logging.getLogger("anyformer")
LENGTH = 128  # positions of a model that is made for a task


@dataclass
class Tuning:
    """What fine-tuning is asked for."""

    model: str  # a folder, a name of the hub, or a recipe to train from fresh weights
    task: str
    data: str  # a file or a data set
    validation: str | None = None  # a file
    held_out: float = 0.1  # of a file without another to validate on
    options: dict[str, Any] = field(default_factory=dict[str, Any])  # of a recipe
    fields: dict[str, str] = field(default_factory=dict[str, str])  # of records, as label=stars
    asks: dict[str, Any] = field(default_factory=dict[str, Any])  # settings of the objective
    labels: tuple[str, ...] = ()  # (): those of the model or of the data
    new_head: bool = False  # though the model tells other labels apart
    tokenizer: str | None = None  # a folder, or a kind as wordpiece:4000
    length: int | None = None  # tokens of a row at most
    on_bad: OnBad = "raise"  # or "skip": records that can't be read are left out, and counted

    @property
    def fresh(self) -> bool:
        """Whether the model is a recipe's."""
        named = self.model in RECIPES or self.model in SIZES
        return named and not Path(self.model).exists()


@dataclass
class Ready:
    """All that fine-tuning needs, which fits together."""

    model: Model | S.Model
    plan: Any  # the objective as data
    words: Tokenizer | None
    material: RecordSource
    learn: list[Any]  # records as they are trained on
    check: list[Any]

    @property
    def fresh(self) -> bool:
        """Whether weights are drawn."""
        return not isinstance(self.model, Model)


def finetune(
    model: str,
    task: str,
    data: str,
    out: str | Path,
    settings: Settings | None = None,
    **more: Any,
) -> run.Run:
    """Teach a folder's model or a recipe a task from a file of records or a data set.

    `more` are the fields of Tuning. Settings are the usual ones unless given. The run's folder can
    be resumed; its `scores` are the field's, of the validation and the test records.
    """
    ready = prepare(Tuning(model, task, data, **more))
    return tune(ready, out, settings or usual(ready))


def prepare(wish: Tuning) -> Ready:
    """Read the records and make the objective, the tokenizer and the model that go with them."""
    work, material = work_of(wish.task), source_of(wish)
    learn, check = material.rows()
    twice = shared(learn, check)
    if twice:
        log.warning("%d of %d records to validate on are trained on too", twice, len(check))
    folder = None if wish.fresh else hub.folder_of(wish.model)
    plan: Any = plan_for(wish, learn[0], folder)
    if isinstance(plan, Labelled) and not _numbers(plan):
        whole = [*learn, *check] if wish.validation is None else learn
        whole += registry.load(wish.data, "test", material.task) if material.task else []
        theirs = labels_there(folder, work) if folder is not None and not wish.new_head else ()
        found = wish.labels or labels_for(plan, labels_in(plan, whole), theirs, wish.model)
        plan = S.override(plan, "labels", found)
    words: Any = _words(wish, plan, learn)
    count = _count(plan, learn)
    model = (
        _fresh(wish, plan, words, count) if folder is None else _loaded(wish, plan, folder, count)
    )
    bound: Task = plan.bind(words, model.spec if isinstance(model, Model) else model)
    for record in (*learn, *check):
        check_record(bound, plan, work, record)
    return Ready(model, plan, words, material, spread(bound, learn), spread(bound, check))


def usual(ready: Ready, epochs: float = 3.0, **given: Any) -> Settings:
    """The usual settings of fine-tuning, some of them given: a gentle rate that falls to zero."""
    rows = len(ready.learn)
    found: dict[str, Any] = {"batch": 32, "lr": 1e-3 if ready.fresh else 5e-5, **given}
    steps = found.setdefault("steps", max(1, math.ceil(rows * epochs / found["batch"])))
    every = max(1, min(math.ceil(rows / found["batch"]), math.ceil(steps / 3)))
    return Settings(
        **{
            "weight_decay": 0.01,
            "optimiser": AdamW(betas=(0.9, 0.98 if ready.fresh else 0.999)),
            "schedule": LinearDecay(warmup=steps // 10),
            "evaluation": Evaluation(every=every if ready.check else 0),
            "saving": Saving(every=every, take="best" if ready.check else "last"),
            **found,
        }
    )


def tune(ready: Ready, out: str | Path, settings: Settings) -> run.Run:
    """Train what is ready in a new folder, and score it."""
    learn = Records(ready.learn, settings.seed)
    check = Records(ready.check, settings.seed, False) if ready.check else None
    source = S.to_dict(ready.material)
    done = run.train(
        ready.model, (learn, check), ready.plan, out, settings, ready.words, source=source
    )
    return score.finish(done)


# ------------------------------------------------------------------- the objective


def source_of(wish: Tuning) -> RecordSource:
    """Where the records of a wish come from."""
    work, kind = work_of(wish.task), kind_of(wish.data, wish.task)
    if kind is not None and wish.validation is not None:
        raise InputError(f"{wish.data} has records to validate on: leave --validation out")

    def named(fields: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(wish.fields.get(name, name) for name in fields)

    return RecordSource(
        what=wish.data,
        task=kind,
        work=wish.task,
        validation=wish.validation,
        held_out=wish.held_out,
        lists=named(work.lists),
        files=named(work.files),
        on_bad=wish.on_bad,
    )


def plan_for(wish: Tuning, first: Record, folder: Path | None = None) -> Any:
    """The objective of a task, without labels, for records like the first one."""
    work = work_of(wish.task)
    strange = [name for name in wish.fields if name not in work.fields]
    if strange:
        known = ", ".join(work.fields)
        raise InputError(f"{wish.task} reads no field {strange[0]!r}; it reads {known}")
    asks = {**work.asks, **_guessed(work, first), **_pixels(work, folder)}
    plan = objective(work.objective, **asks)
    length = next((n for n in ("length", "context") if n in names(type(plan))), None)
    changes: dict[str, Any] = {**wish.fields, **wish.asks}
    if wish.length is not None and length is not None and length not in work.fields:
        changes = {length: wish.length, **changes}
    for path, value in changes.items():
        plan = S.override(plan, path, value)
    return plan


def _guessed(work: Work, first: Record) -> dict[str, Any]:
    """What the fields of the first record tell: choices go with a context, a question or both."""
    if work.objective != "multiple-choice":
        return {}
    there = {name: name if name in first else None for name in ("context", "question")}
    return there if any(there.values()) else {}


def _pixels(work: Work, folder: Path | None) -> dict[str, Any]:
    """The scale of pixels that a folder's model was trained with."""
    return pixels_in(folder) if "image" in work.fields and folder is not None else {}


def check_record(bound: Task, plan: Any, work: Work, record: Record) -> None:
    """Raise where a record lacks a field or has a label that isn't one."""
    optional = ("answers",) if name_of(plan) == "question-answering" else ()
    for name in (vars(plan)[own] for own in work.fields if own not in optional):
        if name is not None:
            field_of(record, name)
    if isinstance(bound, OfClasses):
        bound.classes.target(record)
    elif isinstance(bound, Chosen):
        bound.target(record)


def _numbers(plan: Any) -> bool:
    return isinstance(plan, Classification) and plan.answers == "numbers"


def _count(plan: Any, rows: list[Any]) -> int:
    """The logits of a head: one for each label or number."""
    if isinstance(plan, Classification) and plan.answers == "numbers":
        value: Any = field_of(rows[0], plan.label)
        return len(value) if isinstance(value, list | tuple) else 1
    return len(plan.labels) if isinstance(plan, Labelled) else 1


# ----------------------------------------------------------------------- the model


def _words(wish: Tuning, plan: Any, learn: list[Any]) -> Tokenizer | None:
    if isinstance(plan, ImageClassification):
        return None
    if wish.tokenizer is None and not wish.fresh:
        return tokenizer_of(wish.model)
    if not wish.fresh and not Path(str(wish.tokenizer)).is_dir():
        raise InputError(f"{wish.model} has its own tokens: --tokenizer must be their folder")
    own = name_of(default_for(wish.model)) if wish.fresh else ""
    make = lambda: begin.words_for(wish.tokenizer, own, lambda: _texts(plan, wish.task, learn))
    return begin.same(make() if ranks.rank() == 0 else None)


def _texts(plan: Any, task: str, rows: list[Any]) -> Iterator[str]:
    """The texts of records."""
    left = ("label", "tags", "answers", "image")
    fields = [vars(plan)[name] for name in work_of(task).fields if name not in left]
    for record in rows:
        for value in (record.get(name) for name in fields if name is not None):
            yield " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _fresh(wish: Tuning, plan: Any, words: Tokenizer | None, count: int) -> S.Model:
    """A recipe's spec with the tokenizer's vocabulary and the head of the task."""
    known, given = options(wish.model), dict(wish.options)
    if "vocab" in known and words is not None:
        given.setdefault("vocab", len(words))
    if "length" in known:
        given.setdefault("length", wish.length or LENGTH)
    return S.check(_fitted(plan, recipe(wish.model, **given), count))


def _loaded(wish: Tuning, plan: Any, folder: Path, count: int) -> Model:
    """A folder's model with the head of the task."""
    if isinstance(plan, Captioning) and wish.options:
        raise InputError("options are for recipes; a folder's model is what it is")
    work = work_of(wish.task)
    if is_native(folder) or work.head is None:
        model = load(folder, dtype="float32", override=wish.options or None)
    else:
        labels = (list(plan.labels) or count) if isinstance(plan, Labelled) else None
        given = {"override": wish.options or None, "labels": labels}
        model = load(folder, work.head, dtype="float32", **given)
    spec = _fitted(plan, model.spec, count)
    return model if spec == model.spec else swap(model, spec, share=True)


def _fitted(plan: Any, spec: S.Model, count: int) -> S.Model:
    if _numbers(plan):
        return head_for("classification", spec, count, "numbers")
    return plan.fit(spec)
