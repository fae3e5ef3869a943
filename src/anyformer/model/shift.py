"""The decoder's input made from labels, or from the encoder's where the head asks of that.

Letters: B batch, N positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.checks import IGNORED
from anyformer.model.inputs import Inputs, readable


def shift_labels(spec: S.Model, given: Inputs) -> Inputs:
    """Where an encoder-decoder gets labels alone, its decoder reads them shifted right.

    One with classes or spans reads the encoder's ids so.
    """
    name = "input_ids" if isinstance(spec.head, S.Classes | S.Span) else "labels"
    ids: Tensor | None = getattr(given, name)
    alone = given.decoder_input_ids is None and given.past_key_values is None
    if spec.encoder is None or spec.start is None or ids is None or not alone:
        return given
    if ids.dim() != 2 or ids.shape[1] == 0 or ids.is_floating_point():
        shape = tuple(ids.shape)
        raise InputError(f"{name} must be integers of shape (batch, length), not {shape}")
    given.decoder_input_ids = shift_right(ids, spec.start, spec.pad)
    return given


def shift_right(labels: Tensor, start: int | str, pad: int | None) -> Tensor:
    """Labels (B, N) -> ids (B, N): `start`, then all labels but the last, `pad` where ignored."""
    if pad is not None:
        labels = labels.masked_fill(labels == IGNORED, pad)
    elif readable(labels) and bool((labels == IGNORED).any()):
        raise InputError("ignored labels need an id to stand for them: set pad in the spec")
    if isinstance(start, int):
        first = torch.full_like(labels[:, :1], start)
    else:
        real = torch.ones_like(labels) if pad is None else (labels != pad).long()
        first = labels.gather(1, (real.sum(1, keepdim=True) - 1).clamp(min=0))
    return torch.cat([first, labels[:, :-1]], 1)
