"""What the folder of a study holds so far, as results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from anyformer.errors import StudyError
from anyformer.spec import from_dict, to_dict
from anyformer.study import again
from anyformer.study.nodes import FlopBudget, Study, rates_of
from anyformer.study.plan import Trial
from anyformer.study.results import Arm, Outcome, Point, Results, Status
from anyformer.study.work import RUNS, SAMPLE, kept, outcome
from anyformer.train import log

STUDY, RESULTS = "study.json", "results.json"
VALIDATION = "validation/"


def results_of(
    home: Path,
    study: Study,
    arms: Sequence[Arm],
    keys: Sequence[str],
    more: Mapping[str, Any] | None = None,
) -> Results:
    """The results of the runs of a study, finished or not."""
    known = {arm.name: arm for arm in arms}
    trials = [(key, kept(home, key)) for key in keys]
    return Results(
        name=study.name,
        title=study.title or study.name,
        baseline=study.variants[0].name,
        arms=tuple(arms),
        outcomes=tuple(_outcome(home, key, trial, known[trial.variant]) for key, trial in trials),
        seeds=study.seeds,
        rates=rates_of(study),
        score=study.score,
        lower=study.lower,
        anchors=(study.anchors[0], study.anchors[1]) if study.anchors else None,
        match=equal(study),
        study=to_dict(study),
        **(more or {}),
    )


def equal(study: Study) -> str:
    """What is equal between the variants of a study, in words."""
    names = {"parameters": "parameters", "non_embedding": "non-embedding parameters",
             "flops": "compute for each token"}  # fmt: skip
    spent = "compute" if isinstance(study.budget, FlopBudget) else "tokens"
    if study.match is None:
        return spent
    also = "compute" if study.match.on == "flops" and spent == "tokens" else None
    return also or f"{names[study.match.on]} and {spent}"


def _outcome(home: Path, key: str, trial: Trial, arm: Arm) -> Outcome:
    folder, told = home / RUNS / key, outcome(home, key)
    if told is None:
        told = {"status": "running" if (folder / log.METRICS).is_file() else "waiting"}
    history = log.read(folder)
    text = folder / SAMPLE
    points, (more, note) = _points(history, _seconds(folder), arm), again.read(folder)
    if points and more:
        last = points[-1]
        points = (*points[:-1], replace(last, scores={**last.scores, **more}))
    return Outcome(
        variant=trial.variant,
        seed=trial.seed,
        lr=trial.lr,
        key=key,
        status=cast(Status, told["status"]),
        reason=told.get("reason"),
        points=points,
        training=tuple(
            (int(r["step"]), float(r["loss"]))
            for r in history
            if "loss" in r and not isinstance(r["loss"], str)
        ),
        sample=text.read_text("utf-8") if text.is_file() else None,
        note=note,
    )


def _points(
    history: list[dict[str, Any]], seconds: dict[int, float], arm: Arm
) -> tuple[Point, ...]:
    found: dict[int, Point] = {}
    for record in history:
        if f"{VALIDATION}loss" not in record:
            continue
        scores = {
            name.removeprefix(VALIDATION): float(value)
            for name, value in record.items()
            if name.startswith(VALIDATION) and not isinstance(value, str)
        }
        step = int(record["step"])
        tokens = step * arm.tokens
        passed = 0.0 if step == 0 else seconds.get(step)
        found[step] = Point(step, tokens, 3 * arm.flops * tokens, passed, scores)
    return tuple(found[step] for step in sorted(found))


def _seconds(folder: Path) -> dict[int, float]:
    """Seconds of training until each step that was timed; of steps done twice the last time."""
    file, steps = folder / log.SPEED, {}
    for line in file.read_text("utf-8").splitlines() if file.is_file() else ():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        steps[int(told["step"])] = float(told["step_seconds"])
    passed, before, found = 0.0, 0, {}
    for step in sorted(steps):
        passed += steps[step] * (step - before)
        before, found[step] = step, passed
    return found


def study_of(home: Path) -> Study:
    """The study that a folder holds."""
    try:
        told = json.loads((home / STUDY).read_text("utf-8"))
    except FileNotFoundError as error:
        raise StudyError(f"{home} is no study: it has no {STUDY}") from error
    except ValueError as error:
        raise StudyError(f"{home / STUDY} can't be read: {error}") from error
    found = from_dict(told["study"])
    if not isinstance(found, Study):
        raise StudyError(f"{home / STUDY} describes a {type(found).__name__}, not a Study")
    return found
