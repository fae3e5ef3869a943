"""Which positions a head may read: the real ones, and among those the ones its token tells.

Letters: B batch, N positions.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.inputs import Inputs, Sequence, readable


def pooled(head: S.Head | None, seq: Sequence, given: Inputs, length: int) -> Tensor | None:
    """True where a head may read (B, N); None: everywhere."""
    if isinstance(head, S.Span) and head.token is not None:
        return _answerable(head.token, seq)
    keep = None if seq.mask is None else seq.mask[:, -length:].bool()
    if not isinstance(head, S.Classes) or head.token is None:
        return keep
    if head.pool == "marked":
        return _marked(head.token, given, length)
    if seq.embedded:
        return keep
    real = torch.ones_like(seq.x, dtype=torch.bool) if keep is None else keep
    found = real & (seq.x != head.token)
    return found | _first(real) & ~found.any(1, keepdim=True)  # the first one at least


def typed(head: S.Head | None, seq: Sequence, types: int) -> Sequence:
    """The sequence with types that tell the question from the rest, where none are given."""
    token = head.token if isinstance(head, S.Span) else None
    if token is None or seq.embedded or seq.types is not None or types < 2:
        return seq
    return replace(seq, types=(~_question(token, seq)).long())


def _question(token: int, seq: Sequence) -> Tensor:
    """True up to a token's first place (B, N), up to the first real position where it has none."""
    real = torch.ones_like(seq.x) if seq.mask is None else seq.mask.int()
    found = (seq.x == token) & real.bool()
    last = torch.where(found.any(1), found.int().argmax(1), real.argmax(1))
    return torch.arange(seq.x.shape[1], device=seq.x.device) <= last[:, None]


def _answerable(token: int, seq: Sequence) -> Tensor | None:
    """True behind the question and at the first real position (B, N); None: everywhere."""
    if seq.embedded:
        return None
    real = torch.ones_like(seq.x) if seq.mask is None else seq.mask
    return _first(real) | ~_question(token, seq)


def _first(real: Tensor) -> Tensor:
    """True at the first real position of each row (B, N)."""
    return torch.arange(real.shape[1], device=real.device) == real.int().argmax(1, keepdim=True)


def _marked(token: int, given: Inputs, length: int) -> Tensor:
    """Where the input, the encoder's where there is one, holds a token."""
    ids, mask = given.input_ids, given.attention_mask
    if ids is None or ids.shape[1] != length:
        raise InputError(
            f"this head reads where input_ids hold {token}: pass them, and decoder_input_ids of "
            "the same length or none"
        )
    found = ids == token if mask is None else (ids == token) & mask[:, -length:].bool()
    if readable(found) and not bool(found.any(1).all()):
        raise InputError(f"this head reads where input_ids hold {token}: every row needs one")
    return found
