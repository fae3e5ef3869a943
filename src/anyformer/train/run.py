"""A run is a folder that holds everything needed to repeat it, and to go on with it.

`run.json` (spec, objective, data, settings, versions, command), `metrics.jsonl`, `checkpoints/`,
`tokenizer/`, and at the end `model/`, which anyformer.load reads.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import anyformer
from anyformer import spec as S
from anyformer.checkpoint.native import Origin
from anyformer.data.order import mix
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import TrainError
from anyformer.model.model import Model, build
from anyformer.objectives.base import Objective, Trainee
from anyformer.ops.exact import exact
from anyformer.recipes import recipe
from anyformer.spec import strict
from anyformer.train import card, log, optim, prepare, ranks, room, save
from anyformer.train.lock import FILE, Lock
from anyformer.train.loop import CHECKPOINTS, Loop, Position
from anyformer.train.progress import Progress
from anyformer.train.settings import Settings, Spreading, check
from anyformer.train.step import Stepper

SAME = ("spec", "objective", "data", "settings", "origin", "drawn")  # on every rank
RECORD, MODEL, TOKENIZER, SPARE = "run.json", "model", "tokenizer", "spare.safetensors"
SCORES = "scores.json"
FORMAT = 1  # of run.json
Pair = Samples | Sequence[Samples | None]  # training samples, or those and validation's
Open = Callable[[Any], Pair]  # samples out of what a record says of their source


@dataclass
class Run:
    """What a run made: its folder, all its numbers, and the last ones."""

    folder: Path
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    steps: int = 0
    best: float | None = None
    stopped: str | None = None

    @property
    def loss(self) -> float | None:
        """The training loss of the last step that was logged."""
        return next((r["loss"] for r in reversed(self.history) if "loss" in r), None)

    @property
    def validation(self) -> dict[str, float]:
        """The last evaluation."""
        last = next((r for r in reversed(self.history) if "validation/loss" in r), {})
        mark = "validation/"
        return {k[len(mark) :]: v for k, v in last.items() if k.startswith(mark)}

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """The field's scores of each split, where the run was one of fine-tuning."""
        file = self.folder / SCORES
        return json.loads(file.read_text("utf-8")) if file.is_file() else {}

    def model(self) -> Model:
        """The trained model."""
        return anyformer.load(self.folder / MODEL)

    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer that its texts were read with, where there was one."""
        home = self.folder / TOKENIZER
        return Tokenizer.load(home) if home.is_dir() else None


@dataclass
class Job:
    """All that a run needs at hand."""

    folder: Path
    model: Model
    objective: Objective
    samples: Samples
    validation: Samples | None
    settings: Settings
    record: dict[str, Any]


def train(
    model: S.Model | Model | str,
    samples: Pair,
    objective: Any,
    out: str | os.PathLike[str],
    settings: Settings = Settings(),
    tokenizer: Tokenizer | None = None,
    source: Any = None,
) -> Run:
    """Train a spec, a recipe by name or a model on samples, in a new folder.

    `samples` are those to train on, or a pair of those and others to validate on. `objective` is
    a node, bound here to the tokenizer and the spec, or one that is bound already. `source` says in
    plain data where the samples come from; it is kept for `resume`, which hands it to an opener.
    """
    folder, world = Path(out), ranks.world()
    check(settings, world)
    for tracker in settings.trackers:
        log.module_of(tracker)
    held = ranks.from_first((folder / RECORD).exists())
    if held and not ranks.restarted():
        raise TrainError(f"{folder} holds a run: resume it, or give another folder")
    strange = ranks.from_first(None if held else _strange(folder))
    if strange is not None:
        raise TrainError(f"{folder} is not empty, it holds {strange}: give another folder")
    drawn = not isinstance(model, Model)
    spec = model.spec if isinstance(model, Model) else _spec(model)
    bound = objective if isinstance(objective, Objective) else objective.bind(tokenizer, spec)
    found, validation = _pair(samples)
    record = {
        "format": FORMAT,
        "name": folder.name,
        "spec": S.to_dict(spec),
        "drawn": drawn,
        "objective": None if isinstance(objective, Objective) else S.to_dict(objective),
        "data": {**_data(found, validation), "source": source},
        "settings": S.to_dict(settings),
        "origin": _origin(model),
        "tokenizer": tokenizer is not None,
        "versions": versions(),
        "command": sys.argv,
        "world": world,
    }
    made = {"torch": torch.__version__, "anyformer": anyformer.__version__}
    ranks.agree({**{k: record[k] for k in SAME}, **made})
    again = held and _same_run(folder, record)
    with Lock(folder), exact(settings.deterministic):
        if ranks.rank() == 0 and not again:
            if tokenizer is not None:
                _keep_tokenizer(folder / TOKENIZER, tokenizer)
            _keep_spare(folder, model)
            write(folder / RECORD, json.dumps(record, indent=1))
        built = model if isinstance(model, Model) else _drawn(spec, settings)
        job = Job(folder, built, bound, found, validation, settings, record)
        return _run(job, again)


def resume(
    folder: str | os.PathLike[str],
    samples: Pair | None = None,
    objective: Objective | None = None,
    open: Open | None = None,
    changed: bool = False,
    spreading: Spreading | None = None,
) -> Run:
    """Go on with a run from its last complete checkpoint, bit for bit as if it had not stopped.

    Samples are given, or opened from what the record says of their source. Data that is not what
    the run began with is refused, unless `changed` allows it. The number of ranks may be another,
    and so may how the model lies over them (`spreading`).
    """
    home = Path(folder)
    record = read(home)
    spec, settings = S.from_dict(record["spec"]), S.from_dict(record["settings"])
    settings = settings if spreading is None else replace(settings, spreading=spreading)
    check(settings, ranks.world())
    if samples is None:
        if open is None:
            raise TrainError(f"resume needs the samples of {home}: give samples= or open=")
        samples = open(record["data"]["source"])
    found, validation = _pair(samples)
    if not changed:
        _same_data(record["data"], _data(found, validation))
    ranks.agree({"data": _data(found, validation), "settings": S.to_dict(settings)})
    with Lock(home), exact(settings.deterministic):
        built = _drawn(spec, settings)
        built.origin = _origin_of(home, record)
        bound = objective if objective is not None else _bound(home, record, spec)
        job = Job(home, built, bound, found, validation, settings, record)
        return _run(job, again=True)


def read(folder: Path) -> dict[str, Any]:
    """The record of a run."""
    importlib.import_module("anyformer.train.settings")
    if find_spec("anyformer.objectives.registry") is not None:
        importlib.import_module("anyformer.objectives.registry")
    if not (folder / RECORD).is_file():
        raise TrainError(f"{folder} is no run: it has no {RECORD}; give a folder that has one")
    record = strict.read(folder / RECORD, TrainError)
    version = record.get("format") if isinstance(record, dict) else None
    if version != FORMAT:
        raise TrainError(
            f"{folder / RECORD} has format {version!r}; this version of anyformer reads {FORMAT}: "
            "use the version that made it"
        )
    return record


def _run(job: Job, again: bool = False) -> Run:
    """Train to the end and write the model."""
    settings, device = job.settings, ranks.device_of(job.settings.device)
    torch.manual_seed(mix(settings.seed, 1))
    trainee = Trainee(job.model, job.objective).to(device)
    optim.freeze(trainee, settings.frozen)
    prepare.prepare(trainee, settings)
    stepper = Stepper(_spread(trainee, settings), settings, device)
    progress = Progress(settings.steps, quiet=ranks.rank() != 0)
    try:
        loop = Loop(stepper, job.samples, job.validation, job.folder, progress)
        try:
            _begin(loop, job, again)
            loop.run()
        except KeyboardInterrupt:  # a second time: now
            loop.saver.abandon()
            raise
        finally:
            loop.close()
        if ranks.rank() == 0:
            export(job.folder, job.model.origin, loop.at)
        ranks.barrier()
    except (RuntimeError, MemoryError) as error:
        if not room.out_of_memory(error):
            raise
        raise TrainError(room.advice(trainee, settings, device)) from error
    except OSError as error:
        raise TrainError(
            f"{error}; what was saved in {job.folder} is intact: put it right, and resume"
        ) from error
    finally:
        progress.close()
    history = log.read(job.folder)
    return Run(job.folder, history, loop.at.step, loop.at.best, loop.at.stopped)


def _begin(loop: Loop, job: Job, again: bool) -> None:
    """Be at the last checkpoint, or make the first one."""
    step = loop.newest() if again else None
    if step is not None:
        loop.restore(step)
        loop.progress.say(f"going on after step {step}")
        return
    if again and not job.record["drawn"]:
        raise TrainError(
            f"{job.folder} has no complete checkpoint, and its first weights came from elsewhere: "
            "begin anew in another folder"
        )
    if loop.log is not None:
        loop.log.cut(0)
    loop.save()


def _spread(trainee: Trainee, settings: Settings) -> ranks.Spread:
    """A trainee over all ranks."""
    if ranks.world() == 1:
        return ranks.alone(trainee)
    return importlib.import_module("anyformer.train.parallel").spread(trainee, settings)


def export(folder: Path, origin: object | None, at: Position) -> None:
    """Write a run's model: the weights of its last or best checkpoint, averaged where they are."""
    record = read(folder)
    settings: Settings = S.from_dict(record["settings"])
    best = settings.saving.take == "best" and at.best_step is not None
    step = at.best_step if best and at.best_step is not None else at.step
    home = folder / CHECKPOINTS / save.name(step)
    wrong = save.fault(home)
    if wrong is not None:
        raise TrainError(f"the checkpoint {home} is damaged: {wrong}")
    model = build(S.from_dict(record["spec"]))
    stored, weights = save.stored(home), model.state_dict()
    mean = lambda k: f"ema/model.{k}"
    names = {k: mean(k) if mean(k) in stored else f"trainee/model.{k}" for k in weights}
    save.fill(home, {names[k]: v for k, v in weights.items()}, together=False)
    model.origin = origin
    target = folder / MODEL
    model.save_pretrained(target)
    if record["tokenizer"]:
        Tokenizer.load(folder / TOKENIZER).save(target)
    history = log.read(folder)
    last = next((r for r in reversed(history) if "validation/loss" in r), {}) or (
        next((r for r in reversed(history) if "loss" in r), {})
    )
    write(target / "README.md", card.card(record, last, at.step))


def versions() -> dict[str, str]:
    """What a run was made with."""
    return {
        "anyformer": anyformer.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def _spec(model: S.Model | str) -> S.Model:
    return S.check(recipe(model) if isinstance(model, str) else model)


def _drawn(spec: S.Model, settings: Settings) -> Model:
    torch.manual_seed(mix(settings.seed if settings.draw is None else settings.draw, 0))
    return build(spec)


def _pair(samples: Pair) -> tuple[Samples, Samples | None]:
    if not isinstance(samples, tuple | list):
        return samples, None  # type: ignore[return-value]
    first, *others = samples
    if first is None or len(others) > 1:
        raise TrainError("samples are those to train on, or a pair of those and validation's")
    return first, others[0] if others else None


def _data(samples: Samples, validation: Samples | None) -> dict[str, Any]:
    told = lambda s: None if s is None else {"fingerprint": s.fingerprint, "size": s.size}
    return {"train": told(samples), "validation": told(validation)}


def _strange(folder: Path) -> str | None:
    """What a folder holds that no run which was cut short has left there."""
    if not folder.is_dir():
        return None
    left = {FILE, TOKENIZER, SPARE, f".{RECORD}.tmp"}
    return next((p.name for p in sorted(folder.iterdir()) if p.name not in left), None)


def _same_run(folder: Path, record: dict[str, Any]) -> bool:
    """Whether a folder has a checkpoint of the run that torchrun starts again."""
    then, now = read(folder), json.loads(json.dumps(record))
    if any(then[k] != now[k] for k in SAME):
        raise TrainError(f"{folder} holds another run: give another folder")
    return ranks.from_first(bool(save.steps(folder / CHECKPOINTS)))


def _same_data(then: dict[str, Any], now: dict[str, Any]) -> None:
    for name in ("train", "validation"):
        if then[name] != now[name]:
            raise TrainError(
                f"the {name} data is not what the run began with (then {then[name]}, now "
                f"{now[name]}): put it back, begin a new run from the last model, or resume with "
                "changed=True to go on with other data"
            )


def _bound(folder: Path, record: dict[str, Any], spec: S.Model) -> Objective:
    if record["objective"] is None:
        raise TrainError(f"the objective of {folder} was made by hand: give objective=")
    tokenizer = Tokenizer.load(folder / TOKENIZER) if record["tokenizer"] else None
    return S.from_dict(record["objective"]).bind(tokenizer, spec)


def _origin(model: object) -> dict[str, Any] | None:
    origin = model.origin if isinstance(model, Model) else None
    if not isinstance(origin, Origin):
        return None
    return {"family": origin.family, "task": origin.task, "config": origin.config}


def _keep_tokenizer(target: Path, tokenizer: Tokenizer) -> None:
    """Write a tokenizer so that it comes back with its roles, which its files may not state."""
    tokenizer.save(target)
    if Tokenizer.load(target).role_ids != tokenizer.role_ids:
        roles = {role: tokenizer.token(id) or "" for role, id in tokenizer.role_ids.items()}
        tokenizer.with_roles(**roles).save(target)


def _keep_spare(folder: Path, model: object) -> None:
    """Write weights that a model came with and has no use for, so that they go back in the end."""
    origin = model.origin if isinstance(model, Model) else None
    if isinstance(origin, Origin) and origin.spare:
        save_file({k: v.contiguous() for k, v in origin.spare.items()}, folder / SPARE)


def _origin_of(folder: Path, record: dict[str, Any]) -> Origin | None:
    if record["origin"] is None:
        return None
    spare = load_file(folder / SPARE) if (folder / SPARE).is_file() else {}
    return Origin(**record["origin"], spare=spare)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    beside = path.with_name(f".{path.name}.tmp")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
