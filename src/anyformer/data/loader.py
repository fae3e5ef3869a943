"""The loader: batches of a step, worked out from the step alone.

Step s reads the samples s·B … (s+1)·B - 1, whatever the number of ranks and workers; each row's
randomness comes from the seed and the sample's index. So the loader has no state, and the only
thing that a run has to remember is the step.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from anyformer.data.order import late
from anyformer.data.samples import Samples
from anyformer.errors import InputError

Batch = dict[str, Tensor]


class Maker(Protocol):
    """What makes batches of samples: an objective."""

    def example(self, samples: Any, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """One row of arrays, of the sample at an index."""
        ...

    def collate(self, examples: Sequence[dict[str, np.ndarray]]) -> Batch:
        """Rows as tensors."""
        ...


@dataclass(frozen=True)
class Loader:
    """The micro-batches of one rank, step by step."""

    samples: Samples
    maker: Maker
    batch: int  # rows of a step, over all ranks
    micro: int | None = None  # rows at once; None: all of a rank's
    seed: int = 0
    rank: int = 0
    world: int = 1
    workers: int = 0  # processes that work ahead; 0: none

    def __post_init__(self) -> None:
        if self.batch % self.world:
            raise InputError(
                f"a batch of {self.batch} rows can't be shared by {self.world} ranks: "
                f"take a multiple of {self.world}"
            )

    def rows(self, step: int) -> range:
        """The samples that this rank reads in a step."""
        share = self.batch // self.world
        first = step * self.batch + self.rank * share
        return range(first, first + share)

    def step(self, step: int) -> list[Batch]:
        """This rank's micro-batches of one step."""
        rows = self.rows(step)
        micro = self.micro or len(rows)
        return [
            self.maker.collate([self._example(i) for i in rows[at : at + micro]])
            for at in range(0, len(rows), micro)
        ]

    def steps(self, steps: Iterable[int], pin: bool = False) -> Generator[list[Batch], None, None]:
        """The micro-batches of some steps, in order; with workers they are made ahead.

        `pin` puts them into memory that a GPU can copy from while it computes.
        """
        if not self.workers and not pin:
            yield from map(self.step, steps)
            return
        found = iter(
            DataLoader(
                _Steps(self),
                batch_size=None,
                sampler=steps,
                num_workers=self.workers,
                pin_memory=pin and torch.cuda.is_available(),
                prefetch_factor=4 if self.workers else None,
            )
        )
        try:
            yield from found
        finally:  # not when an error lets go of them: torch would tell of a dead worker again
            getattr(found, "_shutdown_workers", lambda: None)()

    def _example(self, index: int) -> dict[str, np.ndarray]:
        return self.maker.example(self.samples, index, late(self.seed, index))


class _Steps(Dataset[list[Batch]]):
    """A loader as torch's workers read it: by step."""

    def __init__(self, loader: Loader):
        self.loader = loader

    def __getitem__(self, step: int) -> list[Batch]:
        return self.loader.step(step)
