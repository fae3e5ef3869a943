"""The end of fine-tuning: the field's scores, and a model's folder that says what it is for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import anyformer
from anyformer import spec as S
from anyformer.checkpoint import hub
from anyformer.checkpoint.tokenizer import tokenizer
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.model.model import Model
from anyformer.objectives.about import ABOUT, plan_in
from anyformer.objectives.image import ImageClassification
from anyformer.objectives.registry import name_of
from anyformer.objectives.task import Task, evaluate
from anyformer.train import card, ranks, run
from anyformer.train.material import RecordSource
from anyformer.train.settings import Settings


def finish(done: run.Run) -> run.Run:
    """Score a run's model on what was held out, and write scores, task and card into its folder."""
    if ranks.rank() == 0:
        record = run.read(done.folder)
        settings: Settings = S.from_dict(record["settings"])
        home, plan = done.folder / run.MODEL, S.from_dict(record["objective"])
        material: RecordSource = S.from_dict(record["data"]["source"])
        about = {"task": material.work or name_of(plan), "objective": record["objective"]}
        run.write(home / ABOUT, json.dumps(about, indent=1))
        model = anyformer.load(home, device=ranks.device_of(settings.device))
        bound: Task = plan.bind(words_of(home, plan), model.spec)
        size = settings.micro or settings.batch
        found = {name: evaluate(bound, model, r, size) for name, r in material.held().items()}
        run.write(done.folder / run.SCORES, json.dumps(found, indent=1))
        run.write(home / "README.md", card.card(record, {}, done.steps, found))
    ranks.barrier()
    return done


def opened(folder: str | Path, device: torch.device | str | None = None) -> tuple[Task, Model]:
    """The task and the model of a folder that fine-tuning made, ready for `predict`."""
    home = hub.folder_of(folder)
    about = plan_in(home)
    if about is None:
        raise InputError(f"{home} has no {ABOUT}: fine-tune the model first, or name the task")
    model = anyformer.load(home, device=device)
    return about[1].bind(words_of(home, about[1]), model.spec), model


def words_of(folder: Path, plan: Any) -> Tokenizer | None:
    """The tokenizer of a folder, where its task reads or writes text."""
    return None if isinstance(plan, ImageClassification) else tokenizer(folder)
