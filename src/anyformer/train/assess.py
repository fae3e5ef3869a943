"""Scores of a model that is there: on a task's records, or on texts as a language model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import anyformer
from anyformer import spec as S
from anyformer.checkpoint import hub
from anyformer.checkpoint.tokenizer import tokenizer
from anyformer.data import registry
from anyformer.data.corpus import texts_of
from anyformer.data.rows import Rows
from anyformer.errors import InputError
from anyformer.objectives.about import plan_in
from anyformer.objectives.base import Trainee
from anyformer.objectives.registry import default_for, name_of, objective
from anyformer.objectives.task import Task, evaluate
from anyformer.spec.node import names
from anyformer.train import material, measure, score
from anyformer.train.begin import SEGMENTED
from anyformer.train.material import TextSource
from anyformer.train.settings import Evaluation, Settings
from anyformer.train.tune import Tuning, check_record, plan_for, source_of
from anyformer.train.works import (
    Labelled,
    has_head,
    is_native,
    labels_for,
    labels_in,
    labels_there,
    work_of,
)

CONTEXT = 512  # tokens read at once where the model has no limit
BY_TOKEN = {
    "causal": "",
    "segments": "",
    "masked": "pseudo ",
}  # objectives whose loss is bits of every token


def on_task(
    wish: Tuning, split: str = "test", batch: int = 32, device: torch.device | str | None = None
) -> dict[str, float]:
    """A folder's scores on all records of a file, or on one split of a data set."""
    folder, work = hub.folder_of(wish.model), work_of(wish.task)
    if not has_head(folder, work):
        raise InputError(f"{wish.model} has no head for {wish.task}: fine-tune it first")
    rows = source_of(wish).split(split)
    about = plan_in(folder)
    plan: Any = plan_for(wish, rows[0], folder)
    if about is not None and name_of(about[1]) == work.objective:
        plan = about[1]
        for path, value in {**wish.fields, **wish.asks}.items():
            plan = S.override(plan, path, value)
    elif isinstance(plan, Labelled):
        theirs = wish.labels or labels_there(folder, work)
        found = labels_for(plan, labels_in(plan, rows), theirs, wish.model)
        plan = S.override(plan, "labels", found)
    task = None if is_native(folder) else work.head
    model = anyformer.load(folder, task, dtype="float32", device=device)
    bound: Task = plan.bind(score.words_of(folder, plan), model.spec)
    for record in rows:
        check_record(bound, plan, work, record)
    return evaluate(bound, model, rows, batch)


def on_texts(
    folder: str | Path, source: TextSource, asks: dict[str, Any], settings: Settings
) -> dict[str, float]:
    """A language model's numbers on texts: loss, perplexity, bits per byte and per character.

    The loss is that of its own objective, or of the one that `asks` names as "objective", with
    settings of it. That of masked tokens is no likelihood of the text: its numbers are pseudo ones.
    """
    model = anyformer.load(folder, dtype="float32", device=_device(settings))
    asks = dict(asks)
    named = asks.pop("objective", None)
    plan = objective(named) if named else default_for(model.spec)
    for path, value in asks.items():
        plan = S.override(plan, path, value)
    name, words = name_of(plan), tokenizer(folder)
    if not isinstance(plan.bind(words, model.spec), Task) and "context" in names(type(plan)):
        plan = S.override(plan, "context", source.context)
    bound = plan.bind(words, model.spec)
    if isinstance(bound, Task) or bound.reads == "records":
        raise InputError(f"{folder} is a model of {name}: name the task, and records of it")
    source = replace(source, held_out=0.0, segments=SEGMENTED.get(name))
    if name in ("causal", "segments") and "eos" in words.roles:
        source = replace(source, end="eos")
    samples, _ = source.open(words, bound, 0)
    found = measure.evaluate(Trainee(model, bound), samples, settings, _device(settings))
    if len(bound.weights) == 1:  # its one term is the loss
        found = {k: v for k, v in found.items() if not k.startswith("loss/")}
    if name not in BY_TOKEN or not isinstance(samples, Rows):
        return found
    texts = [
        text for what in source.what for text in texts_of(what, **_reading(what, source)).texts()
    ]
    size, letters = (sum(map(count, texts)) for count in (_bytes, len))
    mark, tokens = BY_TOKEN[name], samples.shards.tokens
    if mark:
        found[f"{mark}perplexity"] = found.pop("perplexity")
    for unit, total in (("byte", size), ("character", letters)):
        found[f"{mark}bits per {unit}"] = measure.bits_per_byte(found["loss"], tokens, total)
    return found


def texts_in(what: tuple[str, ...], split: str, **options: Any) -> TextSource:
    """Texts to be evaluated on: of a data set those of a split, else all."""
    chosen = lambda one: f"{one}:{split}" if one in registry.names("text") else one
    return TextSource(what=tuple(map(chosen, what)), **options)


def context_for(folder: str | Path, asked: int | None) -> int:
    """The tokens read at once: what is asked for, else all that a model can."""
    from anyformer.model.inputs import position_limit

    if asked is not None:
        return asked
    return position_limit(anyformer.load(folder, device="meta").spec) or CONTEXT


def _reading(what: str, source: TextSource) -> dict[str, Any]:
    return material.reading(source) if Path(what).exists() else {}


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _device(settings: Settings) -> torch.device:
    from anyformer.train import ranks

    return ranks.device_of(settings.device)


def reading(rows: int | None, batch: int, device: str) -> Settings:
    """Settings of an evaluation: how many rows, and how many at a time."""
    return Settings(evaluation=Evaluation(rows=rows), batch=batch, device=device)
