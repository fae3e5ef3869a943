"""From tensors to the kernel that compares logits with labels."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyformer.ops.entropy import IGNORED
from anyformer.ops.kernels.entropy import entropy
from anyformer.ops.kernels.launch import power

PIECE, WARPS = 4096, 16  # logits that a program reads at once
WIDTH = 16  # bytes that a thread reads at once
PROGRAMS = 2  # of a multiprocessor: the rows that they hold fit into a GPU's last cache


class Site(NamedTuple):
    """Numbers of one call."""

    vocab: int
    wide: int  # with what fills it up
    cap: float
    rows: int
    turns: int  # rows that a program takes


class Shape(NamedTuple):
    """What the kernel is compiled for."""

    N: int
    K: int
    CAP: bool
    LEARNS: bool
    IGNORED: int = IGNORED


def run(
    logits: Tensor, labels: Tensor, vocab: int, cap: float | None, learns: bool
) -> tuple[Tensor, Tensor]:
    """logits (T, V or more), labels (T,) -> losses and hits (T,).

    Where it learns, p - y replaces the logits, and zeros those beyond V, which are no words.
    """
    rows, wide = logits.shape
    loss = logits.new_empty(rows, dtype=torch.float32)
    hits = labels.new_empty(rows)
    programs = min(rows, _programs(logits.device))
    site = Site(vocab, wide, cap or 0.0, rows, -(-rows // programs))
    group = WIDTH // logits.element_size()
    shape = Shape(min(PIECE, power(vocab)), group, cap is not None, learns)
    with torch.cuda.device(logits.device) if logits.is_cuda else nullcontext():
        kernel: Any = entropy[(programs,)]
        kernel(logits, labels, loss, hits, site, shape, num_warps=WARPS)
    return loss, hits


def _programs(device: torch.device) -> int:
    """How many are under way at once."""
    if device.type != "cuda":
        return PROGRAMS
    return PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count
