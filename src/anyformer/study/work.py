"""One run of a study: from what its file says to what came of it, again and again if need be."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from anyformer import spec as S
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import AnyformerError, DivergedError, StudyError
from anyformer.study.again import reevaluate
from anyformer.study.plan import TOKENIZER, Trial
from anyformer.train.loop import CHECKPOINTS
from anyformer.train.run import RECORD, Run, resume, train, write
from anyformer.train.sample import sample, writes

PLAN = "trials.json"
TRIALS, RUNS, OUTCOME, SAMPLE = "trials", "runs", "outcome.json", "sample.txt"


def keep(home: Path, trial: Trial) -> Path:
    """Write what a run is to be into the study's folder."""
    file = home / TRIALS / f"{trial.key}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    told = {"variant": trial.variant, "seed": trial.seed, "lr": trial.lr, "content": trial.content}
    write(file, json.dumps(told, indent=1))
    return file


def kept(home: Path, key: str) -> Trial:
    """A run as its file says it is to be."""
    return Trial(**json.loads((home / TRIALS / f"{key}.json").read_text("utf-8")))


def plan(home: Path, keys: Sequence[str]) -> None:
    """Keep which runs belong to the study as it stands: its folder may hold older ones."""
    write(home / PLAN, json.dumps(list(keys)))


def planned(home: Path) -> list[str]:
    """The keys of the runs of a study, in their order."""
    file = home / PLAN
    return json.loads(file.read_text("utf-8")) if file.is_file() else []


def outcome(home: Path, key: str) -> dict[str, Any] | None:
    """What came of a run: status and reason; None while nothing has."""
    file = home / RUNS / key / OUTCOME
    return json.loads(file.read_text("utf-8")) if file.is_file() else None


def over(home: Path, key: str) -> bool:
    """Whether a run needs no more work: a run that failed is tried again."""
    found = outcome(home, key)
    return found is not None and found["status"] in ("done", "diverged")


def retry(home: Path, keys: Sequence[str]) -> list[str]:
    """Those of the runs that need work; ones that failed have nothing behind them any more."""
    left = [key for key in keys if not over(home, key)]
    for key in left:
        (home / RUNS / key / OUTCOME).unlink(missing_ok=True)
    return left


def do(home: Path, key: str) -> str:
    """Run a trial to its end, from its last checkpoint where it has one; its status."""
    if over(home, key):
        return str((outcome(home, key) or {})["status"])
    folder, start = home / RUNS / key, time.perf_counter()
    status, reason = "done", None
    try:
        done = _trained(home, folder, kept(home, key))
        _leave(folder, done, kept(home, key))
    except DivergedError as error:
        status, reason = "diverged", str(error)
    except AnyformerError as error:
        status, reason = "failed", str(error)
    told = {"status": status, "reason": reason, "seconds": time.perf_counter() - start}
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / OUTCOME, json.dumps(told))
    return status


def _trained(home: Path, folder: Path, trial: Trial) -> Run:
    told = trial.content
    spec, settings = S.from_dict(told["spec"]), S.from_dict(told["settings"])
    if settings.compile:  # graphs of the run before count towards the limit of what is kept
        torch.compiler.reset()
    words = Tokenizer.load(home / TOKENIZER)
    plan = S.from_dict(told["objective"])
    bound = plan.bind(words, spec)
    samples = S.from_dict(told["source"]).open(words, bound, settings.seed)
    _check_rows(samples[0].size, told["data"]["train"]["size"])
    if (folder / RECORD).exists():
        return resume(folder, samples, bound)
    return train(spec, samples, plan, folder, settings, words, source=told["source"])


def _check_rows(now: int, planned: int) -> None:
    if now != planned:
        raise StudyError(
            f"{now} rows are there to train on, and the study began with {planned}: the data "
            "changed, or asks= of the variant change how much is read, which has to be equal"
        )


def _leave(folder: Path, done: Run, trial: Trial) -> None:
    """Judge what the run ended with, evaluate it otherwise where that is asked, keep a sample.

    What only going on needs is dropped.
    """
    last, first = done.validation.get("loss", math.nan), _first(done)
    if not math.isfinite(last) or last > first:
        raise DivergedError(f"the validation loss went from {first:.4g} to {last:.4g}")
    words, model = done.tokenizer(), done.model()
    if words is not None and writes(model.spec):
        write(folder / SAMPLE, sample(model, words))
    if words is not None:
        reevaluate(folder, model, words, trial.content)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def _first(done: Run) -> float:
    return next((r["validation/loss"] for r in done.history if "validation/loss" in r), math.inf)


def serve() -> None:
    """What a worker does: run trials whose keys come on its input, and say how each ended."""
    take, give = sys.stdin, sys.stdout
    sys.stdout = sys.stderr
    home = Path(sys.argv[1])
    for line in take:
        print(do(home, line.strip()), file=give, flush=True)


if __name__ == "__main__":
    serve()
