"""A step that was captured once as a CUDA graph and is replayed: one launch in place of hundreds.

A step of a small model is a long row of short kernels, and Python can't name them as fast as a GPU
is done with them. What is captured must not be read by the host on its way, and must have the same
shapes each time; a step of other shapes is run as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from anyformer.errors import TrainError
from anyformer.objectives.base import Batch
from anyformer.ops.capture import capture, for_replays

Work = Callable[[Sequence[Batch], Tensor], Tensor]
WARM = 3  # steps before a capture, in which libraries and optimisers make what they keep


class Replay:
    """Work that is run some times, then captured, and from then on replayed."""

    def __init__(self, work: Work):
        self.work, self.warm = work, 0
        self.stream: Any = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batches: list[Batch] = []  # what the captured work reads, and
        self.given = self.result = torch.empty(0)  # what it is given and gives

    def __call__(self, batches: Sequence[Batch], given: Tensor) -> Tensor:
        """What the work gives for batches; the host waits for nothing."""
        if self.graph is None and self.warm < WARM:
            self.warm += 1
            return self._beside(batches, given)
        if self.graph is None:
            self._capture(batches, given)
        if not self._alike(batches):
            return self.work(batches, given)
        assert self.graph is not None
        for kept, new in zip(self.batches, batches, strict=True):
            for name, tensor in kept.items():
                tensor.copy_(new[name], non_blocking=True)
        self.given.copy_(given)
        self.graph.replay()
        return self.result.clone()

    def _beside(self, batches: Sequence[Batch], given: Tensor) -> Tensor:
        """The work on a stream of its own, as a capture asks for; it must draw nothing here."""
        self.stream = self.stream or torch.cuda.Stream()
        drawn = torch.default_generator.get_state()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream), for_replays():
            result = self.work(batches, given)
        torch.cuda.current_stream().wait_stream(self.stream)
        if not torch.equal(drawn, torch.default_generator.get_state()):
            raise TrainError(
                "graph=True repeats one step, and this model draws on the host in each one (layers "
                "that are skipped, a depth that is drawn): leave graph out, or those"
            )
        return result

    def _capture(self, batches: Sequence[Batch], given: Tensor) -> None:
        device = given.device
        self.batches = [{k: v.to(device).clone() for k, v in b.items()} for b in batches]
        self.given = given.clone()
        work = lambda: self.work(self.batches, self.given)
        try:
            with for_replays():
                self.graph, self.result = capture(work, self.stream)
        except RuntimeError as error:
            raise TrainError(
                f"graph=True: this step can't be captured ({str(error).splitlines()[0]}): "
                "leave graph out"
            ) from error

    def _alike(self, batches: Sequence[Batch]) -> bool:
        shapes = lambda found: [{k: (v.shape, v.dtype) for k, v in b.items()} for b in found]
        return shapes(batches) == shapes(self.batches)
