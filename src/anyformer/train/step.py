"""One step: this rank's micro-batches forward and backward, one update, sums to be read later.

The loss is Σ weight · sum / count with counts of the whole step, over micro-batches and ranks: how
a step is cut into pieces changes nothing but the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from anyformer.errors import TrainError
from anyformer.objectives.base import Batch, Result, Trainee
from anyformer.ops import lookup
from anyformer.train.ema import Ema
from anyformer.train.graph import Replay, Work
from anyformer.train.low import Low
from anyformer.train.optim import Optimisers, mesh_of
from anyformer.train.ranks import Spread, seed
from anyformer.train.reader import reader
from anyformer.train.settings import Settings
from anyformer.train.update import Update, takes

LOW: tuple[str, ...] = ("cuda",)  # devices on which weights have copies in 16 bits
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Told:
    """Sums of a step as one tensor; a GPU sends it while it goes on, until it is read."""

    def __init__(self, sums: Sums, others: Sequence[str], values: Tensor):
        self.weights, self.metrics, self.others = sums.weights, list(sums.metrics), others
        # float64: the terms' counts and sums, a sum and a count for each metric, the others
        self.values = values.to("cpu", non_blocking=True)
        self.sent = torch.cuda.Event() if values.is_cuda else None
        if self.sent is not None:
            self.sent.record()

    def read(self) -> dict[str, float]:
        """loss, each term, each metric and the others; waits until the device has sent them."""
        if self.sent is not None:
            self.sent.synchronize()
        numbers = iter(self.values.tolist())
        counts = [max(next(numbers), 1.0) for _ in self.weights]
        means = {name: next(numbers) / n for name, n in zip(self.weights, counts, strict=True)}
        found = {"loss": math.fsum(self.weights[name] * mean for name, mean in means.items())}
        found |= {f"loss/{name}": mean for name, mean in means.items()}
        found |= {name: next(numbers) / max(next(numbers), 1.0) for name in self.metrics}
        return found | dict(zip(self.others, numbers, strict=True))


class Sums:
    """Sums of losses and metrics over micro-batches, and the counts that they are divided by."""

    def __init__(self, weights: dict[str, float]):
        self.weights = weights
        self.losses: dict[str, Tensor] = {}
        self.metrics: dict[str, tuple[Tensor, Tensor]] = {}

    def add(self, *results: Result) -> None:
        """Add what micro-batches, or pieces of one, gave."""
        for result in results:
            for name, loss in result.losses.items():
                value = loss.detach().double()
                self.losses[name] = self.losses[name] + value if name in self.losses else value
            for name, (top, count) in result.metrics.items():
                pair = (top.detach().double(), count.detach().double())
                old = self.metrics.get(name)
                self.metrics[name] = pair if old is None else (old[0] + pair[0], old[1] + pair[1])

    def values(self, spread: Spread, counts: Tensor, *others: Tensor) -> Tensor:
        """Counts, each term and each metric over all ranks; others are summed as they are.

        `counts` (terms,) are of the whole step already.
        """
        parts = [self.losses[n].reshape(()) for n in self.weights]
        parts += [x.reshape(()) for pair in self.metrics.values() for x in pair]
        parts += [x.reshape(()).double() for x in others]
        whole = torch.stack([part.to(counts.device) for part in parts])
        return torch.cat([counts, spread.sum(whole)])


class Stepper:
    """Runs steps of a trainee."""

    def __init__(self, spread: Spread, settings: Settings, device: torch.device):
        self.spread, self.settings, self.device = spread, settings, device
        self.optimisers = Optimisers(spread.trainee, settings)
        self.weights = dict(spread.trainee.objective.weights)
        self.ema = None if settings.ema is None else Ema(spread.trainee, settings.ema)
        half = settings.precision == "float16"
        self.scaler = torch.amp.GradScaler(device.type, init_scale=2.0**14, enabled=half)
        if settings.graph and (device.type != "cuda" or spread.world * spread.copies > 1):
            raise TrainError(
                "graph=True replays a step on one CUDA GPU, in one process: leave it out"
            )
        self.sums = Sums(self.weights)  # of the last step
        self.work: Work = self._work
        self.reader: nn.Module | None = None
        self.low: Low | None = None
        self.update: Update | None = None
        self.forget()

    def autocast(self) -> AbstractContextManager[object]:
        """The precision that the settings ask for."""
        dtype = DTYPES.get(self.settings.precision)
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    def counts(self, batches: Sequence[Batch]) -> list[float]:
        """How many things each term counts in this rank's part of a step."""
        objective, total = self.spread.trainee.objective, [0.0] * len(self.weights)
        for batch in batches:
            found = objective.counts(batch)
            total = [t + float(found[n]) for t, n in zip(total, self.weights, strict=True)]
        return total

    def move(self, batch: Batch) -> Batch:
        """A batch on the device."""
        if self.device.type == "cpu":
            return batch
        return {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}

    def run(
        self, step: int, batches: Sequence[Batch], factor: float, stop: bool, metrics: bool = True
    ) -> Told:
        """One step with a learning rate times a factor; `stop`: this rank wants to stop.

        The numbers told are loss, terms, metrics where asked for, how many want to
        stop and the gradient's norm.
        """
        self.reader = self.reader or reader(self.spread, self.device)
        self._lowered()
        for asked in (self.spread.trainee, self.reader):
            if isinstance(asked, Trainee):
                asked.metrics = metrics or self.settings.graph
        seed(self.device, self.settings.seed, step, self.spread.rank)
        self.optimisers.set(factor)
        given = torch.tensor([*self.counts(batches), float(stop)], dtype=torch.float64)
        if self.device.type != "cpu":
            batches = [self.spread.trainee.objective.placed(batch) for batch in batches]
        try:
            values = self.work(batches, given.to(self.device, non_blocking=True))
        except (RuntimeError, MemoryError):
            self._zero()  # whoever goes on has room, and no half of a gradient
            raise
        if self.ema is not None:
            self.ema.update(step)
        return Told(self.sums, ("stop", "norm"), values)

    def forget(self) -> None:
        """Drop what was captured of steps: tensors that it writes into are no longer ours."""
        self.work = Replay(self._work) if self.settings.graph else self._work
        self.reader = self.low = self.update = None

    def _lowered(self) -> None:
        """On one GPU in bfloat16, copies of weights in 16 bits, and the update that writes them."""
        settings, alone = self.settings, self.spread.world * self.spread.copies == 1
        asked = self.device.type in LOW and settings.precision == "bfloat16" and alone
        if self.low is None and asked and takes(self.optimisers):
            self.low = Low(self.spread.module, torch.bfloat16, settings.compile)
            self.update = Update(self.optimisers, self.low, settings.clip)
        if self.low is not None:
            self.low.fresh()

    @contextmanager
    def _lowly(self) -> Iterator[None]:
        """Within it a pass reads the copies, and gradients of a table's rows wait for its end."""
        if self.low is None:
            yield
            return
        with self.low.read(), lookup.later():
            yield

    def _zero(self) -> None:
        """Forget the gradients."""
        self.optimisers.zero()
        if self.low is not None:
            self.low.zero()

    def _work(self, batches: Sequence[Batch], given: Tensor) -> Tensor:
        """All that the device does in a step, on this rank's counts and its wish to stop (T + 1,).

        The host reads nothing of it, so that it can be captured and done again.
        """
        counts, sums = self.spread.sum(given[:-1].clone()), Sums(self.weights)
        self.sums = sums
        scales = self._scales(counts)
        for i, batch in enumerate(batches):
            self._read(self.move(batch), scales, sums, (i, len(batches)))
        norm = self._update()
        values = sums.values(self.spread, counts, given[-1])
        return torch.cat([values, norm.double().reshape(1).to(values.device)])

    def _scales(self, counts: Tensor) -> dict[str, float | Tensor]:
        factor, each = self.spread.factor, counts.clamp(min=1)
        numbers = each.tolist() if self.device.type == "cpu" else each.float().unbind()
        pairs = zip(self.weights.items(), numbers, strict=True)
        return {name: weight * factor / n for (name, weight), n in pairs}

    def _read(
        self, batch: Batch, scales: dict[str, float | Tensor], sums: Sums, turn: tuple[int, int]
    ) -> None:
        """All pieces of a batch in turn; after the last one of the last batch ranks meet."""
        pieces, carry = self.spread.trainee.objective.pieces(batch), {}
        last = turn[0] + 1 == turn[1]
        for i, piece in enumerate(pieces):
            self.spread.sync(last and i + 1 == len(pieces))
            with self._lowly():
                carry = self._accumulate({**piece, **carry}, scales, sums)
            if self.low is not None and (len(pieces) > 1 or turn[1] > 1):
                self.low.collect()

    def _accumulate(
        self, batch: Batch, scales: dict[str, float | Tensor], sums: Sums
    ) -> dict[str, Any]:
        """Gradients and sums of one piece; returns what the next is read with."""
        with self.autocast():
            assert self.reader is not None
            result = self.reader(batch)
        terms = [result.losses[name] * scale for name, scale in scales.items()]
        loss = terms[0] if len(terms) == 1 else torch.stack([t.reshape(()) for t in terms]).sum()
        self.scaler.scale(loss).backward()
        sums.add(result)
        return result.carry

    def _update(self) -> Tensor:
        """Clip and update; returns the norm of the gradient before it was clipped."""
        if self.update is not None:
            norm = self.update.run()
            self._zero()
            return norm
        for optimiser in self.optimisers.all:
            self.scaler.unscale_(optimiser)
        norm = clip(self.optimisers.parameters, self.settings.clip)
        for optimiser in self.optimisers.all:
            self.scaler.step(optimiser)
        self.scaler.update()
        self.optimisers.zero()
        return norm


def clip(parameters: Sequence[torch.nn.Parameter], most: float | None) -> Tensor:
    """The norm of all gradients; they are scaled down to `most` where it is more."""
    alike: dict[object, tuple[list[torch.nn.Parameter], list[Tensor]]] = {}  # over the same ranks
    for parameter in parameters:
        if (grad := parameter.grad) is not None:
            owners, grads = alike.setdefault(mesh_of(grad), ([], []))
            owners.append(parameter)
            grads.append(grad)
    norms = [_norm(grads) for _, grads in alike.values()]
    norm = norms[0] if len(norms) == 1 else torch.nn.utils.get_total_norm(norms)
    if most is not None and not (norm.device.type == "cpu" and float(norm) <= most):
        for owners, _ in alike.values():
            torch.nn.utils.clip_grads_with_norm_(owners, most, norm)
    return norm


def _norm(grads: list[Tensor]) -> Tensor:
    norm = torch.nn.utils.get_total_norm(grads)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
