"""What loops add to the loss: ponder costs, entropies of exits, balances of routers.

A pass gives sums over real positions by name, those of an encoder with `encoder.` before it; the
loss takes each by its weight over the number of positions. Letters: R rounds, B batch, N positions,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer import spec as S
from anyformer.model.checks import IGNORED, predicts_next
from anyformer.model.flops import positions
from anyformer.model.inputs import Inputs
from anyformer.model.output import Output
from anyformer.spec.walk import models

SOURCES = ("input_ids", "inputs_embeds", "input_values", "pixel_values")
TARGETS = ("decoder_input_ids", "decoder_inputs_embeds")


def weights(spec: S.Model) -> dict[str, float]:
    """The weight in the loss of what each loop of a model adds to it."""
    found: dict[str, float] = {}
    for path, model in models(spec):
        match model.stack.loop and model.stack.loop.halt:
            case S.Act(cost=cost):
                found[f"{path}ponder"] = cost
            case S.Exit(beta=beta):
                found[f"{path}exit"] = beta
            case S.Route(cost=cost):
                found[f"{path}route"] = cost
    return found


def counts(spec: S.Model, given: Mapping[str, Any]) -> dict[str, Tensor]:
    """The real positions of the stacks that add something to the loss, from a model's arguments."""
    found = {}
    for name in weights(spec):
        path = name.rpartition(".")[0]
        inner = path.count("encoder") > 0 or spec.encoder is None
        model = spec.encoder if path and spec.encoder is not None else spec
        names, mask = (SOURCES, "attention_mask") if inner else (TARGETS, "decoder_attention_mask")
        found[name] = torch.as_tensor(_real(model, given, names, mask))
    return found


def _real(model: S.Model, given: Mapping[str, Any], names: tuple[str, ...], mask: str) -> Any:
    """Real positions of a sequence; without the decoder's ids it reads its labels."""
    x = next((given[n] for n in names if given.get(n) is not None), given.get("labels"))
    assert x is not None
    flat = x[..., 0] if x.is_floating_point() else x  # (…, N), an image aside
    rows = len(x) if x.dim() == 4 else flat[..., 0].numel()
    keep, tokens = given.get(mask), model.embed.memory * rows
    real = rows * positions(model, flat.shape[-1]) if keep is None else keep.sum()
    return real + tokens


def joined(
    mine: dict[str, Tensor] | None, inner: dict[str, Tensor] | None
) -> dict[str, Tensor] | None:
    """What a model and its encoder add."""
    if inner is None:
        return mine
    return (mine or {}) | {f"encoder.{name}": value for name, value in inner.items()}


def with_extra(spec: S.Model, out: Output, given: Inputs) -> Tensor | None:
    """The loss of an output in training, with what its loops add."""
    if out.loss is None or out.extra is None:
        return out.loss
    loss, factors, numbers = out.loss, weights(spec), counts(spec, vars(given))
    if out.exits is not None and given.labels is not None:
        logits, p, labels = *out.exits, given.labels
        if predicts_next(spec):
            logits, p, labels = logits[:, :, :-1], p[:, :-1], labels[:, 1:]
        loss = expected_sum(logits, p, labels) / (labels != IGNORED).sum().clamp(min=1)
    for name, value in out.extra.items():
        loss = loss + factors[name] * value / numbers[name].to(value.device)
    return loss


def expected_sum(logits: Tensor, p: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Σ p(t)·cross-entropy of round t: logits (R, B, N, V), p (B, N, R), labels (B, N)."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 2)
    asked = labels.long().expand(logits.shape[:-1]).flatten()
    each = F.cross_entropy(
        wide, asked, ignore_index=IGNORED, reduction="none", label_smoothing=smoothing
    )
    return (each.view(logits.shape[:-1]) * p.movedim(-1, 0)).sum()
