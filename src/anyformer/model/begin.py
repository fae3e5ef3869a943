"""The start and the end of a pass through a stack: positions, padding, memory tokens, memories.

Letters: B batch, N positions of the input, T memory tokens, K all positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.inputs import Sequence
from anyformer.parts.state import Past


@dataclass
class Layout:
    """Where everything stands in one pass."""

    positions: Tensor  # (1 or B, N) of the input
    whole: Tensor  # (1 or B, K) of remembered, memory-token and input positions
    keep: Tensor | None  # (B, K)
    right: bool  # padding is on the right of every row
    first: Tensor | int = 0  # rows before the input's first real position, (B,) or for all rows
    order: Tensor | None = None  # (B, T + N): rows of [memory tokens, input] in their real order
    placed: Tensor | None = None  # (B, 1): tokens with a place, up to the end of the input


def arrange(
    seq: Sequence, rows: int, memory: int, past: Past | None, device: torch.device
) -> Layout:
    """Positions and padding of a sequence of `rows` positions after `memory` tokens or a past."""
    keep = _keep(seq.mask, rows, past)
    new_keep = None if keep is None else keep[:, -rows:]
    left = None if new_keep is None or past is not None else new_keep.int().argmax(1)  # (B,)
    padded_left = left is not None and bool(left.any())
    positions = _positions(seq, rows, past, new_keep, device)
    right = keep is not None and not padded_left and bool((keep.int().diff(dim=1) <= 0).all())
    if past is not None:
        assert past.positions is not None
        return Layout(positions, _beside(past.positions, positions), keep, right)
    first = memory + left if padded_left and left is not None else memory
    if not memory:
        return Layout(positions, positions, keep, right, first)
    front = torch.arange(-memory, 0, device=device)[None]
    whole = _beside(front, positions)
    if keep is not None:
        keep = torch.cat([keep.new_ones(keep.shape[0], memory), keep], 1)
    if not padded_left or left is None or keep is None:
        return Layout(positions, whole, keep, right, first)
    order = _after_padding(left, memory, rows)
    return Layout(positions, whole.gather(1, order), keep.gather(1, order), False, first, order)


def primed(stack: S.Stack, limit: int, mask: Tensor | None, device: torch.device) -> Past | None:
    """A memory of `limit` zeros for a first call, where the stack starts with one."""
    if not stack.primed or not limit:
        return None
    if mask is not None and not bool(mask[:, 0].all()):
        raise InputError("a memory of zeros stands right before a row: put padding on the right")
    return Past(limit=limit, length=limit, positions=torch.arange(-limit, 0, device=device)[None])


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
        ones = lambda n: torch.ones(batch, n, dtype=torch.bool, device=device)
        mask = ones(rows) if mask is None else mask.bool()
        keep = torch.cat([ones(old) if before is None else before, mask], 1)
    elif mask.shape[1] < old + rows and before is not None:  # memory tokens, behind padding
        keep = torch.cat([before, mask[:, -rows:].bool()], 1)
    else:  # the mask covers what is remembered too; memory tokens in front are real
        mask = mask.bool()
        keep = torch.cat([mask.new_ones(mask.shape[0], old + rows - mask.shape[1]), mask], 1)
    return None if bool(keep.all()) else keep


def _positions(
    seq: Sequence, rows: int, past: Past | None, keep: Tensor | None, device: torch.device
) -> Tensor:
    if seq.positions is not None:
        return seq.positions
    count = torch.arange(rows, device=device)[None]
    if seq.documents is not None:
        new = torch.ones_like(seq.documents, dtype=torch.bool)
        new[:, 1:] = seq.documents[:, 1:] != seq.documents[:, :-1]
        return count - (count * new).cummax(1).values
    left = None if keep is None else keep.int().argmax(1)[:, None]  # (B, 1)
    if past is not None:
        return _continued(past, count, left)
    return count if left is None or not bool(left.any()) else (count - left).clamp(min=0)


def places(seq: Sequence, layout: Layout, position: S.Absolute | None, past: Past | None) -> Tensor:
    """Positions (1 or B, N) that the embedding adds: -1 for a token id without a place.

    The others count as if such tokens, and padding on the left, were away.
    """
    skip = None if position is None else position.skip
    if skip is None or seq.embedded or seq.positions is not None:
        return layout.positions
    there = seq.x != skip
    mask = seq.mask if past is None else layout.keep
    begun = True if mask is None else mask.cumsum(1)[:, -there.shape[1] :] > 0
    counted = there & begun
    before = counted.cumsum(1) - counted.int()
    if past is not None:
        before = before + (past.seen if past.placed is None else past.placed)
    layout.placed = before[:, -1:] + counted[:, -1:]
    if seq.documents is not None:
        new = torch.ones_like(there)
        new[:, 1:] = seq.documents[:, 1:] != seq.documents[:, :-1]
        before = before - (before * new).cummax(1).values
    return torch.where(there, before, -1)


def _continued(past: Past, count: Tensor, left: Tensor | None) -> Tensor:
    """Positions after a past; a row that was padding so far begins at its first real position."""
    assert past.positions is not None
    after = past.positions[:, -1:] + 1 + count
    if past.keep is None or left is None:
        return after
    begun = (past.keep & (past.positions >= 0)).any(1, keepdim=True)
    return torch.where(begun, after, (count - left).clamp(min=0))


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
    if limit is not None and layout.order is not None:
        raise InputError(
            "return_mems: memory tokens stay first in a memory, which padding on the left forbids; "
            "give rows of one length"
        )
    new = layout.whole.shape[1] - (past.length if past is not None else 0)
    following = Past(limit=limit, pinned=pinned)
    following.seen = (past.seen if past is not None else 0) + layout.positions.shape[1]
    total = (past.length if past is not None else 0) + new
    following.length = total if limit is None else min(total, pinned + limit)
    following.positions = layout.whole if limit is None else following.kept(layout.whole)
    following.placed = layout.placed
    if past is not None and past.is_cache and limit is None:
        following.tables = past.tables
    if layout.keep is not None:
        following.keep = layout.keep if limit is None else following.kept(layout.keep)
    return following
