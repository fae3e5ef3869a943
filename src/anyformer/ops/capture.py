"""Work on a GPU captured as a graph that owns all the memory it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

LOOSE = "thread_local"  # other threads may go on with their own work
Result = TypeVar("Result")


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
