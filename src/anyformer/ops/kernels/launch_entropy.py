"""From tensors to the kernel that compares logits with labels."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyformer.ops.entropy import IGNORED
from anyformer.ops.kernels.entropy import entropy
from anyformer.ops.kernels.launch import power

PIECE, WARPS = 4096, 8  # logits that a program reads at once


class Site(NamedTuple):
    """Numbers of one call."""

    vocab: int
    wide: int  # with what fills it up
    cap: float


class Shape(NamedTuple):
    """What the kernel is compiled for."""

    N: int
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
    shape = Shape(min(PIECE, power(vocab)), cap is not None, learns)
    given = (logits, labels, loss, hits, Site(vocab, wide, cap or 0.0), shape)
    with torch.cuda.device(logits.device) if logits.is_cuda else nullcontext():
        kernel: Any = entropy[(rows,)]
        kernel(*given, num_warps=WARPS)
    return loss, hits
