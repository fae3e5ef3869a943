"""Does a model, with the weights that it has, stay within the range of its dtype?"""

from __future__ import annotations

from dataclasses import replace

import torch

from anyformer import spec as S
from anyformer.laws.cases import Side, sides
from anyformer.model.count import checked_length
from anyformer.model.model import Model
from anyformer.model.overflow import Overflow, overflow

ROWS, LENGTH = 2, 64


def overflows(model: Model, seed: int = 0) -> Overflow | None:
    """The first module of a model at which numbers are lost, on one batch of random inputs.

    The model is tried as it is: in the dtype of its weights, where they are. One batch that stays
    finite does not prove that all do.
    """
    first = next(model.parameters())
    length = min(LENGTH, checked_length(model.spec, None), _words(model.spec))
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        found = [s for s in sides(model.spec, ROWS, length, length) if s is not None]
    given = {}
    for side in found:
        whole = slice(None)
        given |= _moved(side, first).part(whole, whole)
    return overflow(model, lambda: model(**given))


def _words(spec: S.Model) -> int:
    """The smallest vocabulary of a model: rows have no token twice."""
    models = [spec] if spec.encoder is None else [spec, spec.encoder]
    sources = [model.embed.source for model in models]
    return min((s.vocab for s in sources if isinstance(s, S.Tokens)), default=LENGTH)


def _moved(side: Side, like: torch.Tensor) -> Side:
    x = side.x.to(like) if side.x.is_floating_point() else side.x.to(like.device)
    return replace(side, x=x, beside={k: v.to(like.device) for k, v in side.beside.items()})
