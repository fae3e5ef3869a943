"""What the loop costs: a run's steps against a bare loop of the same forward, backward and update.

Both train the same decoder (4 layers, width 128) on the same batches with AdamW and clipping. The
bare loop is what one would write by hand; ours adds seeds, counts, metrics, the guard, the log and
speed, and checkpoints are left out. Steps alternate, so that what else the machine does falls on
both alike, and processor time is told beside the clock's: on a busy machine it is the steadier one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from anyformer.model.model import build
from anyformer.objectives.base import Batch, Objective, Result, Trainee, inputs
from anyformer.objectives.losses import token_sum
from anyformer.recipes import recipe
from anyformer.train.loop import Loop
from anyformer.train.progress import Progress
from anyformer.train.ranks import alone
from anyformer.train.settings import Saving
from anyformer.train.settings import Settings as Training
from anyformer.train.step import Stepper
from anyformer.train.stop import Stop
from benchmarks.runner import Settings, Table, interval

VOCAB, LENGTH, ROWS, STEPS = 65, 64, 12, 10


class _Random:
    """Rows of random tokens."""

    size, fingerprint = 4096, "random"

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return {"ids": np.random.default_rng(index % 64).integers(0, VOCAB, LENGTH + 1)}


class _Causal(Objective):
    """The next token."""

    def __init__(self):
        self.weights = {"next": 1.0}

    def example(self, samples, index, rng):
        ids = samples[index]["ids"]
        return {"input_ids": ids[:-1], "labels": ids[1:]}

    def counts(self, batch: Batch):
        return {"next": (batch["labels"] != -100).sum()}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        return Result({"next": token_sum(trainee.model(**inputs(batch)).logits, batch["labels"])})


def _trainee() -> Trainee:
    torch.manual_seed(0)
    options = {"dim": 128, "depth": 4, "heads": 4, "vocab": VOCAB, "length": LENGTH}
    return Trainee(build(recipe("gpt2", **options, dropout=0.0)), _Causal()).train()


def _bare() -> Callable[[Batch], None]:
    """A step that one would write by hand."""
    trainee = _trainee()
    optimiser = torch.optim.AdamW(trainee.parameters(), 1e-4, fused=True)

    def step(batch: Batch) -> None:
        result = trainee(batch)
        loss = result.losses["next"] / batch["labels"].numel()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainee.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def _ours(folder: Path, ends: ExitStack) -> Callable[[Batch], None]:
    """The same through the loop, with a batch that is made already."""
    settings = Training(steps=10**9, batch=ROWS, lr=1e-4, log_every=10, saving=Saving(every=0))
    stepper = Stepper(alone(_trainee()), settings, torch.device("cpu"))
    loop = Loop(stepper, _Random(), None, folder, Progress(settings.steps, False))
    ends.callback(loop.close)
    stop = Stop()
    return lambda batch: loop.train_on([[batch]], stop)


def _race(
    steps: dict[str, Callable[[Batch], None]], batches: list[Batch], rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Seconds of each step by both clocks, step against step, after a round that is not counted."""
    clocks = {"wall": time.perf_counter, "processor": time.process_time}
    times = {clock: {name: [] for name in steps} for clock in clocks}
    order = list(steps)
    for turn in range(rounds + 1):
        for batch in batches:
            order.reverse()
            for name in order:
                start = {clock: now() for clock, now in clocks.items()}
                steps[name](batch)
                for clock, now in clocks.items() if turn else ():
                    times[clock][name].append(now() - start[clock])
    return times


def overhead(settings: Settings) -> None:
    """Milliseconds of a step, and what the loop adds."""
    torch.set_num_threads(settings.threads)
    objective, rows = _Causal(), _Random()
    example = lambda i: objective.example(rows, i, np.random.default_rng(0))
    batches = [
        objective.collate([example(ROWS * s + i) for i in range(ROWS)]) for s in range(STEPS)
    ]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        works = {"bare loop": _bare(), "anyformer": _ours(Path(folder), ends)}
        times = _race(works, batches, settings.rounds)
    table = Table(
        "The training loop, 4 layers, width 128, CPU",
        ["clock", "bare loop, best ms", "anyformer, best ms", "of best", "by steps"],
    )
    for clock, found in times.items():
        bare, ours = found["bare loop"], found["anyformer"]
        middle, low, high = interval([a / b for a, b in zip(ours, bare, strict=True)])
        best = min(bare), min(ours)
        table.rows.append(
            [
                clock,
                *(f"{t * 1e3:.2f}" for t in best),
                f"{best[1] / best[0]:.3f}",
                f"{middle:.3f} ({low:.3f} to {high:.3f})",
            ]
        )
    table.notes.append(f"{ROWS} rows of {LENGTH} tokens; ratios are ours over the bare loop's")
    table.raw = dict(times)
    table.show(settings, "cpu_train_loop")
