"""The loop: steps, and between them evaluation, saving, going back and stopping.

All that a run has to remember is tensors and a Position; everything else is a function of the step.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from anyformer.data.loader import Loader
from anyformer.data.samples import Samples
from anyformer.errors import DivergedError, TrainError
from anyformer.model.overflow import overflow
from anyformer.objectives.base import Batch
from anyformer.train import ranks, save
from anyformer.train.guard import Watch
from anyformer.train.log import Log
from anyformer.train.measure import evaluate
from anyformer.train.progress import Progress, Speed
from anyformer.train.schedule import factor
from anyformer.train.step import Stepper, Told
from anyformer.train.stop import Stop

CHECKPOINTS = "checkpoints"


@dataclass
class Position:
    """Where a run is, as a checkpoint keeps it beside its tensors."""

    step: int = 0  # steps done
    skipped: list[int] = field(default_factory=list[int])  # batches left out, in order
    backs: int = 0  # how often the guard went back
    best: float | None = None  # validation loss
    best_step: int | None = None
    waited: int = 0  # evaluations since the best one
    stopped: str | None = None  # why a run ended before its last step

    def data(self, step: int) -> int:
        """The batch that a step reads: its own number, moved on by those left out before it."""
        for left_out in self.skipped:
            step += left_out <= step
        return step


@dataclass
class WrongStepError(Exception):
    """A step that the guard doesn't accept."""

    step: int
    reason: str


class Loop:
    """Runs a trainee's steps from wherever it is to the end."""

    def __init__(
        self,
        stepper: Stepper,
        samples: Samples,
        validation: Samples | None,
        folder: Path,
        progress: Progress,
    ):
        spread, settings = stepper.spread, stepper.settings
        self.stepper, self.spread, self.settings = stepper, spread, settings
        self.validation, self.progress = validation, progress
        self.home = folder / CHECKPOINTS
        self.first = ranks.rank() == 0
        self.loader = Loader(
            samples,
            spread.trainee.objective,
            settings.batch,
            settings.micro,
            settings.seed,
            spread.rank,
            spread.world,
            settings.workers,
        )
        self.saver = save.Saver(self.home, settings.saving.keep, settings.saving.background)
        self.log = Log(folder, settings.trackers, folder.name) if self.first else None
        self.watch = Watch(settings.guard, scaled=settings.precision == "float16")
        self.at = Position()
        self.last_wrong = -1
        self.speed = Speed(stepper.device, settings.precision, spread.world)
        self.lag = 1 if stepper.device.type == "cuda" else 0  # steps that are read later
        self.pending: deque[tuple[int, Told, float]] = deque()
        self.stopping = False
        self.looked = settings.precision != "float16" or spread.world * spread.copies > 1

    def run(self) -> None:
        """Go on to the last step; what is saved then is complete."""
        _train(self.spread)
        with Stop() as stop:
            if self.at.step == 0 and self.settings.evaluation.first and self.validation is not None:
                self._evaluate()
            while self.at.step < self.settings.steps and self.at.stopped is None:
                try:
                    self._stretch(stop)
                except WrongStepError as wrong:
                    self._back(wrong)
            self.saver.wait()

    def close(self) -> None:
        """Wait for what is being saved, and close the log."""
        try:
            self.saver.wait()
        finally:
            if self.log is not None:
                self.log.close()

    def _stretch(self, stop: Stop) -> None:
        """Steps until the end, or until one is wrong."""
        steps = range(self.at.step, self.settings.steps)
        pin = self.stepper.device.type == "cuda"
        try:
            with closing(self.loader.steps(_Order(self.at, steps), pin)) as source:
                self.train_on(self.speed.watched(source), stop)
        except (RuntimeError, ConnectionError) as error:
            cut = isinstance(error, ConnectionError) and self.settings.workers  # while it spoke
            if not cut and "DataLoader worker" not in str(error):
                raise
            raise TrainError(
                f"a process that makes batches died: {' '.join(str(error).split())}. Take "
                f"fewer than workers={self.settings.workers}, or 0; resume goes on from the last "
                "checkpoint"
            ) from error

    def train_on(self, source: Iterable[list[Batch]], stop: Stop) -> None:
        """Steps from where the run is, on micro-batches that are given, until it is over."""
        for batches in source:
            step = self.at.step
            if not self.looked:
                self._look(batches[0])
            rate = factor(self.settings.schedule, step, self.settings.steps)
            told = self.stepper.run(step, batches, rate, bool(stop.code), self._logged(step + 1))
            self.speed.add(self.spread.trainee.model.spec, batches)
            self.pending.append((step, told, rate * self.settings.lr))
            self.at.step = step + 1
            self._read(self.lag)
            if self._boundary(stop):
                return

    def _look(self, batch: Batch) -> None:
        """Say, before the first step in float16, where its numbers end."""
        trainee, self.looked = self.spread.trainee, True
        with self.stepper.autocast():
            found = overflow(trainee.model, lambda: trainee(self.stepper.move(batch)))
        if found is not None:
            self.progress.say(f"precision='float16': {found}")

    def _read(self, left: int) -> None:
        """Read and judge the numbers of all steps but the last so many."""
        while len(self.pending) > left:
            step, told, rate = self.pending.popleft()
            numbers = told.read()
            self.stopping |= numbers.pop("stop") > 0
            reason = self.watch.fault(numbers["loss"], numbers["norm"])
            if reason is not None:
                raise WrongStepError(step, reason)
            self._tell(step + 1, numbers, rate)

    def _logged(self, done: int) -> bool:
        """Whether the numbers of a step are written down."""
        return done % self.settings.log_every == 0 or done in (1, self.settings.steps)

    def _tell(self, done: int, numbers: dict[str, float], rate: float) -> None:
        if self.log is None or not self._logged(done):
            return
        self.log.write({"step": done, **numbers, "lr": rate})
        speed = self.speed.look()
        self.log.time({"step": done, **speed})
        self.progress.show(done, numbers["loss"], speed)

    def _boundary(self, stop: Stop) -> bool:
        """Evaluate and save where it is time; whether the run is over."""
        done, last = self.at.step, self.at.step == self.settings.steps
        due = lambda every: last or bool(every and done % every == 0)
        evaluating = self.validation is not None and due(self.settings.evaluation.every)
        if not (evaluating or due(self.settings.saving.every) or self.stopping):
            return False
        self._read(0)
        better = evaluating and self._evaluate()
        wanted = due(self.settings.saving.every) or self.stopping or self.at.stopped is not None
        if wanted or (better and self.settings.saving.best):
            self.save()
        if self.stopping and not last:
            self.saver.wait()
            self.progress.close()
            self.progress.say(f"saved after step {done}; `anyformer resume` goes on from there")
            raise SystemExit(stop.code or 143)
        return self.at.stopped is not None

    def _evaluate(self) -> bool:
        """Evaluate, log, and judge; whether it is the best so far."""
        assert self.validation is not None
        start = time.perf_counter()
        told = self.measure(self.validation)
        self.speed.rest(time.perf_counter() - start)
        if self.log is not None:
            self.log.write(
                {"step": self.at.step, **{f"validation/{k}": v for k, v in told.items()}}
            )
        self.progress.say(f"step {self.at.step}: validation loss {told['loss']:.4f}")
        evaluation, best = self.settings.evaluation, self.at.best
        better = best is None or told["loss"] < best - evaluation.margin
        if better:
            self.at.best, self.at.best_step, self.at.waited = told["loss"], self.at.step, 0
            return True
        self.at.waited += 1
        if evaluation.patience is not None and self.at.waited >= evaluation.patience:
            self.at.stopped = f"no better validation loss in {self.at.waited} evaluations"
            self.progress.say(f"step {self.at.step}: {self.at.stopped}; stopping")
        return False

    def measure(self, samples: Samples) -> dict[str, float]:
        """Losses and metrics over samples, of the averaged weights where there are some."""
        if self.stepper.ema is None:
            return evaluate(self.spread, samples, self.settings, self.stepper.device)
        with self.stepper.ema.swapped():
            return evaluate(self.spread, samples, self.settings, self.stepper.device)

    # ------------------------------------------------------------ state

    def tensors(self) -> dict[str, Tensor]:
        """Everything that is saved, by name."""
        found = {f"trainee/{k}": v for k, v in self.spread.trainee.state_dict().items()}
        found |= {f"optimiser/{k}": v for k, v in self.stepper.optimisers.tensors().items()}
        if self.stepper.ema is not None:
            found |= {f"ema/{k}": v for k, v in self.stepper.ema.tensors().items()}
        return found

    def save(self) -> None:
        """Save where the run is."""
        state = {
            "position": asdict(self.at),
            "watch": self.watch.state(),
            "scaler": self.stepper.scaler.state_dict(),
            "log": self.log.mark() if self.log is not None else 0,
        }
        also = {self.at.best_step} if self.settings.saving.best and self.at.best_step else set()
        self.saver.save(self.at.step, self.tensors(), state, also)

    def restore(self, step: int) -> None:
        """Be where the checkpoint of a step was."""
        self.saver.wait()
        folder = self.home / save.name(step)
        state, mark = save.state_of(folder), "optimiser/"
        stored = {k[len(mark) :]: v for k, v in save.stored(folder).items() if k.startswith(mark)}
        self.stepper.optimisers.prepare(stored)
        self.stepper.forget()
        save.fill(folder, self.tensors())
        self.stepper.scaler.load_state_dict(state["scaler"])
        self.watch.restore(state["watch"])
        self.at = Position(**state["position"])
        self.pending.clear()
        if self.log is not None:
            self.log.cut(state["log"])

    def newest(self) -> int | None:
        """The step of the newest checkpoint that is whole."""
        found = save.newest(self.home, self.progress.say) if self.first else None
        return ranks.from_first(found)

    def _back(self, wrong: WrongStepError) -> None:
        """Go back to the last checkpoint and leave out the batch of a wrong step."""
        guard, before = self.settings.guard, self.at
        data = before.data(wrong.step)
        rows = self.loader.batch * data
        told = f"step {wrong.step + 1}: {wrong.reason} (batch {data}, samples from {rows} on)"
        if guard is None or before.backs >= guard.skips:
            raise DivergedError(
                f"{told}; the run went back {before.backs} times already, so it stops. "
                "Lower lr or clip, look at those samples, or raise guard.skips; resume goes on "
                "from the last checkpoint"
            )
        self.saver.wait()
        target = self.newest()
        if target is None:
            raise TrainError(f"{told}, and there is no checkpoint to go back to: begin anew")
        self.restore(target)
        first = wrong.step if wrong.step != self.last_wrong else target
        left_out = [before.data(s) for s in range(first, wrong.step + 1)]
        self.last_wrong = wrong.step
        self.at.skipped = sorted({*before.skipped, *left_out})
        self.at.backs = before.backs + 1
        self.progress.say(f"{told}; back to step {target}, {len(left_out)} batches left out")
        if self.log is not None:
            event = {"at": wrong.step + 1, "event": wrong.reason, "skipped": self.at.skipped}
            self.log.write({"step": target, **event})


class _Order:
    """The batches that steps read, as a loader asks for them."""

    def __init__(self, at: Position, steps: range):
        self.at, self.steps = at, steps

    def __iter__(self) -> Iterator[int]:
        return map(self.at.data, self.steps)

    def __len__(self) -> int:
        return len(self.steps)


def _train(spread: ranks.Spread) -> None:
    """Training mode; what stands beside a model and doesn't learn keeps its own."""
    beside = spread.trainee.beside
    modes: dict[torch.nn.Module, bool] = {}
    if beside is not None and not any(p.requires_grad for p in beside.parameters()):
        modes = {m: m.training for m in beside.modules()}
    spread.module.train()
    for module, mode in modes.items():
        module.training = mode
