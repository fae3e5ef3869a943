"""What x-transformers' training and sampling arguments mean for anyformer's."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from anyformer import spec as S
from anyformer.errors import InputError, known_or_raise
from anyformer.model.model import Model

top_k, top_p = "top_k", "top_p"  # for filter_logits_fn
DEFAULTS: dict[str, Any] = {
    "eos_token": None,
    "temperature": 1.0,
    "filter_logits_fn": top_k,
    "filter_thres": 0.9,
}


def targets(x: Tensor, mask: Tensor | None, ignore: int) -> Tensor:
    """What x[:, :-1] should predict; padding is not to be predicted."""
    if mask is None:
        return x[:, 1:]
    if mask.shape != x.shape:
        raise InputError(f"mask {tuple(mask.shape)} must have the tokens' shape {tuple(x.shape)}")
    return x[:, 1:].masked_fill(~mask[:, 1:].bool(), ignore)


def sampling(model: Model, options: dict[str, Any]) -> dict[str, Any]:
    """Options of anyformer.generate for those of upstream's generate."""
    for name in options:
        known_or_raise(name, DEFAULTS, "option of generate", InputError)
    chosen = DEFAULTS | options
    kind, share = chosen["filter_logits_fn"], chosen["filter_thres"]
    if kind not in (top_k, top_p, None):
        raise InputError(f"filter_logits_fn must be top_k, top_p or None, not {kind!r}")
    if not 0.0 <= share <= 1.0:
        raise InputError(f"filter_thres must be at least 0 and at most 1, not {share!r}")
    if chosen["temperature"] == 0:
        return {"eos_token_id": chosen["eos_token"], "do_sample": False}
    drawn = {"do_sample": True, "temperature": chosen["temperature"]}
    return {"eos_token_id": chosen["eos_token"], **drawn, **_filter(model, kind, share)}


def _filter(model: Model, kind: str | None, share: float) -> dict[str, Any]:
    """Upstream's top_k keeps the share 1 - filter_thres of the vocabulary, one token at least."""
    if kind is None:
        return {}
    if kind == top_p:
        return {"top_p": share}
    source = model.spec.embed.source
    assert isinstance(source, S.Tokens)
    return {"top_k": max(1, int((1 - share) * source.vocab))}
