"""Deterministic mode: the same numbers, bit for bit, each time the same thing is done."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def exact(on: bool = True) -> Iterator[None]:
    """Within it, torch takes algorithms that give the same bits each time, or raises.

    On a GPU fused attention that sums in any order is left out, and cuBLAS is given a workspace of
    a set size; that is read when it is first used, so enter this before anything runs there.
    """
    if not on:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    kernels, found = torch.backends.cuda, torch.backends.cudnn.benchmark
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    efficient = kernels.mem_efficient_sdp_enabled()
    torch.use_deterministic_algorithms(True)
    kernels.enable_mem_efficient_sdp(False)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        kernels.enable_mem_efficient_sdp(efficient)
        torch.backends.cudnn.benchmark = found
