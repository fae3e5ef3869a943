"""The start and the end of a pass through a stack: positions, padding, memory tokens, memories.

Letters: B batch, N positions of the input, T memory tokens, K all positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyformer.model.inputs import Sequence
from anyformer.parts.state import Past


@dataclass
class Layout:
    """Where everything stands in one pass."""

    positions: Tensor  # (1 or B, N) of the input
    whole: Tensor  # (1 or B, K) of remembered, memory-token and input positions
    keep: Tensor | None  # (B, K)
    right: bool  # padding is on the right of every row
    order: Tensor | None = None  # (B, T + N): rows of [memory tokens, input] in their real order


def arrange(seq: Sequence, rows: int, memory: int, past: Past | None, device: torch.device) -> Layout:
    """Positions and padding of a sequence of `rows` positions after `memory` tokens or a past."""
    keep = _keep(seq.mask, rows, past)
    new_keep = None if keep is None else keep[:, -rows:]
    left = None if new_keep is None or past is not None else new_keep.int().argmax(1)  # (B,)
    padded_left = left is not None and bool(left.any())
    positions = _positions(seq, rows, past, left if padded_left else None, device)
    right = keep is not None and not padded_left and bool((keep.int().diff(dim=1) <= 0).all())
    if past is not None:
        assert past.positions is not None
        return Layout(positions, _beside(past.positions, positions), keep, right)
    if not memory:
        return Layout(positions, positions, keep, right)
    front = torch.arange(-memory, 0, device=device)[None]
    whole = _beside(front, positions)
    if keep is not None:
        keep = torch.cat([keep.new_ones(keep.shape[0], memory), keep], 1)
    if not padded_left or left is None or keep is None:
        return Layout(positions, whole, keep, right)
    order = _after_padding(left, memory, rows)
    return Layout(positions, whole.gather(1, order), keep.gather(1, order), False, order)


def _keep(mask: Tensor | None, rows: int, past: Past | None) -> Tensor | None:
    """Which of all positions are real, (B, K); None if all are."""
    old = past.length if past is not None else 0
    before = past.keep if past is not None else None
    if mask is None and before is None:
        return None
    if mask is None or mask.shape[1] == rows:
        assert before is not None or mask is not None
        batch = (before if before is not None else mask).shape[0]  # type: ignore[union-attr]
        device = (before if before is not None else mask).device  # type: ignore[union-attr]
        ones = lambda n: torch.ones(batch, n, dtype=torch.bool, device=device)  # noqa: E731
        mask = ones(rows) if mask is None else mask.bool()
        keep = torch.cat([ones(old) if before is None else before, mask], 1)
    else:  # the mask covers what is remembered too; memory tokens in front are real
        mask = mask.bool()
        keep = torch.cat([mask.new_ones(mask.shape[0], old + rows - mask.shape[1]), mask], 1)
    return None if bool(keep.all()) else keep


def _positions(
    seq: Sequence, rows: int, past: Past | None, left: Tensor | None, device: torch.device
) -> Tensor:
    if seq.positions is not None:
        return seq.positions
    count = torch.arange(rows, device=device)[None]
    if past is not None:
        assert past.positions is not None
        return past.positions[:, -1:] + 1 + count
    if seq.documents is not None:
        new = torch.ones_like(seq.documents, dtype=torch.bool)
        new[:, 1:] = seq.documents[:, 1:] != seq.documents[:, :-1]
        return count - (count * new).cummax(1).values
    return count if left is None else (count - left[:, None]).clamp(min=0)


def _beside(first: Tensor, second: Tensor) -> Tensor:
    batch = max(first.shape[0], second.shape[0])
    return torch.cat([first.expand(batch, -1), second.expand(batch, -1)], 1)


def _after_padding(left: Tensor, memory: int, rows: int) -> Tensor:
    """For rows [T memory tokens, left padding, rest]: the order that puts padding first."""
    at = torch.arange(memory + rows, device=left.device)[None]
    pads = left[:, None]
    return torch.where(at < pads, at + memory, torch.where(at < pads + memory, at - pads, at))


def remember(past: Past | None, layout: Layout, limit: int | None, pinned: int) -> Past:
    """An empty Past for the next call, with the positions that it will hold."""
    new = layout.whole.shape[1] - (past.length if past is not None else 0)
    following = Past(limit=limit, pinned=pinned)
    following.seen = (past.seen if past is not None else 0) + layout.positions.shape[1]
    total = (past.length if past is not None else 0) + new
    following.length = total if limit is None else min(total, pinned + limit)
    following.positions = layout.whole if limit is None else following.kept(layout.whole)
    if layout.keep is not None:
        following.keep = layout.keep if limit is None else following.kept(layout.keep)
    return following
