"""Which positions a head may read: the real ones, and among those the ones its token tells.

Letters: B batch, N positions.
"""

from __future__ import annotations

from torch import Tensor

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.inputs import Inputs, Sequence, readable


def pooled(head: S.Head | None, seq: Sequence, given: Inputs, length: int) -> Tensor | None:
    """True where a head may read (B, N); None: everywhere."""
    keep = None if seq.mask is None else seq.mask[:, -length:].bool()
    if not isinstance(head, S.Classes) or head.token is None:
        return keep
    if head.pool == "marked":
        return _marked(head.token, given, length)
    if seq.embedded:
        return keep
    real = seq.x != head.token
    return real if keep is None else real & keep


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
