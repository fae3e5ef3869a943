"""Work on a GPU captured as a graph that owns all the memory it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

LOOSE = "thread_local"  # other threads may go on with their own work
Result = TypeVar("Result")
_replays = [0]  # of one process: backward passes have threads of their own


@contextmanager
def for_replays() -> Iterator[None]:
    """Within it work is captured, or runs as it will be: many small kernels cost no more then."""
    _replays[0] += 1
    try:
        yield
    finally:
        _replays[0] -= 1


def replayed() -> bool:
    """Whether what is launched now is launched for a graph."""
    return _replays[0] > 0


def capture(work: Callable[[], Result], stream: Any) -> tuple[Any, Result]:
    """The graph of what work does on a stream, and what it gave, which each replay fills anew.

    Work should have run on the stream before. The workspaces that products of matrices use are
    the graph's own: those that torch keeps for a stream can be freed by whoever asks for it.
    """
    graph = torch.cuda.CUDAGraph()
    torch._C._cuda_clearCublasWorkspaces()
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode=LOOSE):
            result = work()
    finally:
        torch._C._cuda_clearCublasWorkspaces()
    return graph, result
