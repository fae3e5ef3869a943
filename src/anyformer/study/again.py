"""A trained model evaluated otherwise: at other lengths, memories or rounds than in training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint import with_rounds
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import AnyformerError
from anyformer.model.inputs import position_limit
from anyformer.model.model import Model
from anyformer.objectives.base import Trainee
from anyformer.spec.node import names
from anyformer.spec.walk import models
from anyformer.train.material import TextSource
from anyformer.train.measure import evaluate
from anyformer.train.ranks import device_of
from anyformer.train.run import write

AGAIN, MARK = "again.json", "@"
SCORES = ("loss", "accuracy")


class _CantError(AnyformerError):
    """A model can't be evaluated so."""


def reevaluate(folder: Path, model: Model, words: Tokenizer, content: dict[str, Any]) -> None:
    """Evaluate a run's model as its content asks, and keep the scores, as loss@256, in its folder.

    What a model can't do, as to read more than it has positions for, is left out and said.
    """
    asked = [*content.get("lengths", ()), *content.get("retests", ())]
    if not asked:
        return
    scores: dict[str, float] = {}
    cant: dict[str, list[str]] = {}
    model = model.to(device_of(S.from_dict(content["settings"]).device))
    for what in asked:
        try:
            found = _one(model, words, content, what)
        except _CantError as reason:
            cant.setdefault(str(reason), []).append(str(what))
            continue
        scores |= {f"{name}{MARK}{what}": found[name] for name in SCORES if name in found}
    told = [f"{', '.join(many)} ({reason})" for reason, many in cant.items()]
    note = f"not evaluated at {'; '.join(told)}" if told else None
    write(folder / AGAIN, json.dumps({"scores": scores, "note": note}))


def _one(model: Model, words: Tokenizer, content: dict[str, Any], what: int | str) -> Any:
    plan, source = S.from_dict(content["objective"]), S.from_dict(content["source"])
    settings = S.from_dict(content["settings"])
    if isinstance(what, int):
        if not isinstance(source, TextSource):
            raise _CantError("its data are records, which have lengths of their own")
        limits = [n for _, m in models(model.spec) if (n := position_limit(m)) is not None]
        if limits and what > min(limits):
            raise _CantError(f"it has {min(limits)} positions")
        plan = S.override(plan, "context", what) if "context" in names(type(plan)) else plan
        fewer = lambda rows: max(round(rows * source.context / what), 1)  # as many tokens
        rows = settings.evaluation.rows and fewer(settings.evaluation.rows)
        evaluation = replace(settings.evaluation, rows=rows)
        settings = replace(settings, batch=fewer(settings.batch), evaluation=evaluation)
        source = replace(source, context=what)
    else:
        key, _, value = what.partition("=")
        if key == "rounds":
            model = _with_rounds(model, int(value))
        else:
            plan = S.override(plan, key, S.parse(value))
    bound = plan.bind(words, model.spec)
    _, held = source.open(words, bound, settings.seed)
    assert held is not None  # a study has rows to validate on
    device = next(model.parameters()).device
    return evaluate(Trainee(model, bound), held, replace(settings, micro=None), device)


def _with_rounds(model: Model, rounds: int) -> Model:
    runs = S.layout(model.spec.stack)
    if len(set(runs.lenders)) == len(runs.schedule) == len(set(runs.schedule)):
        raise _CantError("each of its layers runs once")
    try:
        return with_rounds(model, rounds)
    except AnyformerError as error:
        raise _CantError(str(error)) from error


def read(folder: Path) -> tuple[dict[str, float], str | None]:
    """The scores of a run under other conditions, and what was not possible."""
    file = folder / AGAIN
    told = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return told.get("scores", {}), told.get("note")
