"""The loss that a head's answers give with labels, as Hugging Face's classes count it.

Letters: B batch, N positions, C classes or choices.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer import spec as S
from anyformer.model.checks import IGNORED, predicts_next
from anyformer.model.inputs import Inputs
from anyformer.model.output import Output


def loss_of(spec: S.Model, out: Output, given: Inputs) -> Tensor | None:
    """The loss of an output; None where nothing is asked. Labels were checked."""
    if isinstance(spec.head, S.Span):
        mask = given.attention_mask if spec.encoder is None else given.decoder_attention_mask
        return _span(out, given, mask)
    if isinstance(spec.head, S.Pretraining):
        return _pretraining(out, given)
    if isinstance(spec.head, S.Beams):
        return _beams(out, given)
    if isinstance(spec.head, S.Pixels):
        return _restored(spec, out, given)
    if given.labels is None:
        return None
    assert out.logits is not None
    logits, labels = _wide(out.logits), given.labels
    if isinstance(spec.head, S.Detect):
        return _detect(logits, labels, given.attention_mask)
    if isinstance(spec.head, S.Classes) and spec.head.answers != "one":
        measure = F.mse_loss if spec.head.answers == "numbers" else _yes_or_no
        return measure(logits, labels.view_as(logits).to(logits.dtype))
    if predicts_next(spec):
        logits, labels = logits[..., :-1, :], labels[..., 1:]
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten().long(), ignore_index=IGNORED)


def _beams(out: Output, given: Inputs) -> Tensor | None:
    """The mean of both ends' cross-entropies, and half of that of there being no answer."""
    if given.start_positions is None or given.end_positions is None:
        return None
    assert out.start_logits is not None and out.end_logits is not None
    loss = F.cross_entropy(_wide(out.start_logits), given.start_positions.long())
    loss = (loss + F.cross_entropy(_wide(out.end_logits), given.end_positions.long())) / 2
    if given.is_impossible is None or out.cls_logits is None:
        return loss
    none = _wide(out.cls_logits)
    return loss + _yes_or_no(none, given.is_impossible.to(none.dtype)) / 2


def choice_loss(out: Output, given: Inputs) -> Tensor | None:
    """The cross-entropy of choices (B, C) beside that of tokens."""
    if out.mc_logits is None or given.mc_labels is None:
        return None
    return F.cross_entropy(_wide(out.mc_logits), given.mc_labels.long())


def _restored(spec: S.Model, out: Output, given: Inputs) -> Tensor | None:
    """The mean of absolute differences at pixels of hidden patches."""
    source, hidden = spec.embed.source, given.bool_masked_pos
    if hidden is None or not isinstance(source, S.Patches):
        return None
    assert out.reconstruction is not None and given.pixel_values is not None
    side, size = source.image // source.patch, source.patch
    seen = hidden.bool().view(-1, 1, side, side)
    seen = seen.repeat_interleave(size, 2).repeat_interleave(size, 3)  # (B, 1, H, W)
    off = (_wide(out.reconstruction) - given.pixel_values).abs() * seen
    return off.sum() / (seen.sum() + 1e-5) / source.channels


def _span(out: Output, given: Inputs, mask: Tensor | None) -> Tensor | None:
    """The mean of both ends' cross-entropies among real positions; an end elsewhere is ignored."""
    if given.start_positions is None or given.end_positions is None:
        return None
    assert out.start_logits is not None and out.end_logits is not None
    start = _end(out.start_logits, given.start_positions.long(), mask)
    return (start + _end(out.end_logits, given.end_positions.long(), mask)) / 2


def _pretraining(out: Output, given: Inputs) -> Tensor | None:
    """The sum of the cross-entropies of what labels are given for."""
    asked = (
        (out.prediction_logits, given.labels),
        (out.seq_relationship_logits, given.next_sentence_label),
        (out.sop_logits, given.sentence_order_label),
    )
    found = [
        F.cross_entropy(_wide(x).flatten(0, -2), y.flatten().long(), ignore_index=IGNORED)
        for x, y in asked
        if x is not None and y is not None
    ]
    return sum(found[1:], found[0]) if found else None


def _end(logits: Tensor, at: Tensor, mask: Tensor | None) -> Tensor:
    """The cross-entropy of one end: logits (B, N), at (B,)."""
    logits, length = _wide(logits), logits.shape[1]
    if mask is not None:
        real = mask.bool()
        logits = logits.masked_fill(~real, -torch.inf)
        beyond = F.pad(real, (0, 1))  # (B, N + 1)
        at = at.where(beyond.gather(1, at.clamp(max=length)[:, None])[:, 0], length)
    return F.cross_entropy(logits, at.clamp(max=length), ignore_index=length)


def _detect(logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
    """Yes or no for every real token (B, N)."""
    real = labels != IGNORED
    real = real if mask is None else real & mask.bool()
    return _yes_or_no(logits[real], labels[real].to(logits.dtype))


def _yes_or_no(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, labels)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
