"""Run a study, or go on with one: its folder holds all that it needs and all that it found."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from anyformer.errors import StudyError, known_or_raise
from anyformer.spec import Model, from_dict, to_dict
from anyformer.study import engine, plan, work
from anyformer.study.gather import RESULTS, STUDY, results_of, study_of
from anyformer.study.nodes import StepBudget, Study, TimeBudget, check, rates_of
from anyformer.study.plan import Ground, Trial
from anyformer.study.reading import promising
from anyformer.study.results import Arm, Results, to_json
from anyformer.train import log
from anyformer.train.ranks import device_of
from anyformer.train.run import versions, write

PROBE, PROBE_STEPS = "probe", 12
Watch = Callable[[Results], object]  # hears the results so far


@dataclass
class Standing:
    """A study that is being run: its folder, its variants, its runs so far."""

    home: Path
    study: Study
    ground: Ground
    arms: list[Arm]
    keys: list[str]

    def results(self) -> Results:
        """What was found so far."""
        more = {"data": self.ground.data, **about(self.home)}
        return results_of(self.home, self.study, self.arms, self.keys, more)


def run(
    study: Study,
    home: str | os.PathLike[str],
    jobs: int | None = None,
    by: str = "local",
    watch: Watch | None = None,
    minutes: float | None = None,
) -> Results:
    """Run a study in a folder, or what is left of it; finished runs are not repeated.

    `jobs` runs share the cores, or the GPU; `by` is "local" or "ray". After so many `minutes` runs
    under way save and stop, and what was found so far is returned: run it again to go on.
    """
    known_or_raise(by, engine.ENGINES, "engine", StudyError)
    if jobs is not None and jobs < 1:
        raise StudyError(f"{jobs} jobs: give 1 or more")
    if study.settings.graph and device_of(study.settings.device).type != "cuda":
        raise StudyError(
            "this study replays steps on a CUDA GPU, and none is here: take --tier cpu, or a study "
            "whose settings have graph=False"
        )
    folder, end = Path(home), time.monotonic() + 60 * (minutes if minutes is not None else math.inf)
    many = jobs or engine.usual_jobs(device_of(study.settings.device).type)
    now = begun(check(study), folder, many)

    def heard() -> None:
        if watch is not None:
            watch(now.results())
        if time.monotonic() > end:
            raise _TimeUpError

    start = lambda: engine.ENGINES[by](folder, now.keys, many, heard)
    with suppress(_TimeUpError):
        start()
        while study.tune == "first" and _add(now, tuned(now)):
            start()
    found = now.results()
    write(folder / RESULTS, to_json(found))
    return found


class _TimeUpError(Exception):
    """The time that a study was given is over."""


def begun(study: Study, home: Path, jobs: int) -> Standing:
    """A study at its start, or where it was: specs, steps and runs are settled and written down."""
    if (home / STUDY).is_file():
        if study_of(home) != study:
            raise StudyError(f"{home} holds another study: give another folder")
        return _settled(study, home, jobs)
    home.mkdir(parents=True, exist_ok=True)
    try:
        _clear(home)  # what is left of one that was killed before it began
        return _settled(study, home, jobs)
    except BaseException:
        if not (home / STUDY).is_file():  # a study that can't be leaves nothing behind
            _clear(home)
            with suppress(OSError):
                home.rmdir()
        raise


def _clear(home: Path) -> None:
    for name in (plan.TOKENIZER, PROBE):
        shutil.rmtree(home / name, ignore_errors=True)


def _settled(study: Study, home: Path, jobs: int) -> Standing:
    ground = plan.ground(study, home)
    specs = plan.specs(study, ground)
    told = _told(home)
    if told is not None:
        arms = [Arm(**{**a, "changes": tuple(a["changes"])}) for a in told["arms"]]
        _same_data(told["data"], ground.data)
    else:
        seconds = probed(study, home, ground, specs, jobs) if plan.is_timed(study) else 0.0
        arms = plan.arms(study, ground, specs, seconds)
        record = {
            "study": to_dict(study),
            "arms": [asdict(arm) for arm in arms],
            "data": ground.data,
            **about(home),
        }
        write(home / STUDY, json.dumps(record, indent=1))
    now = Standing(home, study, ground, arms, [])
    _add(now, plan.trials(study, ground, arms))
    return now


def opened(home: str | os.PathLike[str]) -> Results:
    """The results of a study so far, from its folder alone."""
    folder = Path(home)
    study, told = study_of(folder), _told(folder) or {}
    arms = [Arm(**{**a, "changes": tuple(a["changes"])}) for a in told["arms"]]
    keys = work.planned(folder)
    more = {k: told[k] for k in ("data", "environment", "command")}
    return results_of(folder, study, arms, keys, more)


def _add(now: Standing, trials: Sequence[Trial]) -> bool:
    """Plan runs, those that are planned already left out; whether there was one more."""
    before = len(now.keys)
    for trial in trials:
        if trial.key not in now.keys:
            work.keep(now.home, trial)
            now.keys.append(trial.key)
    work.plan(now.home, now.keys)
    return len(now.keys) > before


def tuned(now: Standing) -> list[Trial]:
    """The other seeds of each variant at its most promising rate.

    Where the mean of a rate's seeds turns out worse than another rate is so far, that one is next.
    """
    found, study = now.results(), now.study
    best = [(arm, promising(found, arm.name)) for arm in plan.longest_first(now.arms)]
    rates = [(arm, lr) for arm, lr in best if lr is not None]  # None: all diverged
    made = lambda arm, seed, lr: plan.trial(study, now.ground, arm, seed, lr)
    return [made(arm, seed, lr) for seed in study.seeds[1:] for arm, lr in rates]


def probed(study: Study, home: Path, ground: Ground, specs: dict[str, Model], jobs: int) -> float:
    """Seconds of the clock that one step of every run takes together, measured in short runs."""
    assert isinstance(study.budget, TimeBudget)
    short = replace(study, budget=StepBudget(steps=PROBE_STEPS), evaluations=1)
    made = plan.arms(short, ground, specs)
    longer = {arm.name: arm.steps / PROBE_STEPS for arm in made}  # some take more steps than others
    arms = [replace(arm, steps=PROBE_STEPS) for arm in made]
    place = home / PROBE
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(home / plan.TOKENIZER, place / plan.TOKENIZER)
    trials = [plan.trial(short, ground, arm, study.seeds[0], rates_of(study)[0]) for arm in arms]
    for trial in trials:
        work.keep(place, trial)
    engine.local(place, [t.key for t in trials], jobs, lambda: None)
    runs = len(study.seeds) * len(rates_of(study))
    steps = rest = 0.0
    for trial in trials:
        each, beside = _times(place, trial)
        steps += each * longer[trial.variant] * runs / jobs
        # beside the steps a probe has its start and two evaluations
        rest += beside * runs / jobs * (study.evaluations + 1) / 2
    shutil.rmtree(place, ignore_errors=True)
    left = study.budget.minutes * 60 - rest
    if left <= 0:
        raise StudyError(
            f"evaluating alone would take {rest / 60:.1f} minutes, and the budget has "
            f"{study.budget.minutes:.2g}: raise it, or give fewer evaluations, rows, seeds or "
            "variants"
        )
    return steps * study.budget.minutes * 60 / left


def _times(home: Path, trial: Trial) -> tuple[float, float]:
    """Seconds of a step of a short run, and of all else in it."""
    told = work.outcome(home, trial.key) or {}
    if told.get("status") != "done":
        raise StudyError(f"{trial.variant} doesn't run: {told.get('reason')}")
    lines = (home / work.RUNS / trial.key / log.SPEED).read_text("utf-8").splitlines()
    steps = [float(json.loads(line)["step_seconds"]) for line in lines][2:]
    each = statistics.median(steps)
    return each, max(float(told["seconds"]) - each * PROBE_STEPS, 0.0)


def about(home: Path) -> dict[str, Any]:
    """Where a study is run and the command that runs it."""
    machine = {"machine": platform.machine(), "cores": engine.cores()}
    if torch.cuda.is_available():
        machine["gpu"] = torch.cuda.get_device_name()
    told = _told(home)
    if told is not None:
        return {k: told[k] for k in ("environment", "command")}
    name = Path(sys.argv[0]).name
    words = [*(["python", "-m", "anyformer"] if name == "__main__.py" else [name]), *sys.argv[1:]]
    return {"environment": {**versions(), **machine}, "command": shlex.join(words)}


def _told(home: Path) -> dict[str, Any] | None:
    file = home / STUDY
    return json.loads(file.read_text("utf-8")) if file.is_file() else None


def _same_data(then: dict[str, Any], now: dict[str, Any]) -> None:
    rows = lambda d: f"{d['size']:,} rows ({d['fingerprint'][:8]})"
    parts = [part for part in ("train", "validation") if then[part] != now[part]]
    if parts:
        told = "; ".join(
            f"{part}: {rows(then[part])} then, {rows(now[part])} now" for part in parts
        )
        raise StudyError(
            f"the data is not what the study began with ({told}): runs on different data can't be "
            "compared. Put it back, or begin anew in another folder"
        )


def read_study(path: str | os.PathLike[str]) -> Study:
    """A study from a JSON file."""
    try:
        found = from_dict(json.loads(Path(path).read_text("utf-8")))
    except OSError as error:
        raise StudyError(f"can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise StudyError(f"{path} is no study: {error}") from error
    if not isinstance(found, Study):
        raise StudyError(f"{path} describes a {type(found).__name__}, not a Study")
    return found
