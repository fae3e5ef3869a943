"""Any part of a model changed, trained weights kept: a model with another spec.

What fits is kept, what can be converted is (see anyformer.checkpoint.conversions), the rest
starts fresh, and the report says which is which.
"""

from __future__ import annotations

import logging

from anyformer import spec as S
from anyformer.checkpoint.conversions import Piece, convert
from anyformer.checkpoint.fill import empty, restore_constants
from anyformer.checkpoint.pairs import Choose
from anyformer.checkpoint.report import Report
from anyformer.checkpoint.work import Work
from anyformer.model.model import Model

log = logging.getLogger("anyformer")


def swap(model: Model, spec: S.Model, *, share: bool = False, choose: Choose = "average") -> Model:
    """A new model of another spec with the weights of this one, as far as they go.

    `report` of the new model says what became of each. Weights are copied; with `share`, those
    that are kept are the old model's own tensors. Layers that become one that is shared are
    averaged, or `choose` takes one of them: stepwise or lower (arXiv:2410.20672).
    """
    new = empty(spec)
    work = Work(model, new, choose)
    made: dict[str, Piece] = {}
    for prefix, part in work.parts():
        made |= {prefix + name: piece for name, piece in convert(part).items()}
    kept = tuple(k for k in work.shapes if k in made and _is_kept(k, made[k]))
    whole = {
        key: made[key].tensor if share and key in kept else work.finish(key, made.get(key))
        for key in work.shapes
    }
    restore_constants(new, work.like.device, work.like.dtype)
    new.load_state_dict(whole, assign=True)
    _settle(model, new, kept)
    new.report = _report(work, made, kept)
    say = log.warning if new.report.fresh or new.report.dropped else log.info
    say("a changed spec: weights %s; print(model.report) lists them", new.report.summary)
    return new


def _is_kept(key: str, piece: Piece) -> bool:
    return piece.sources == (key,) and not piece.said


def _settle(old: Model, new: Model, kept: tuple[str, ...]) -> None:
    """Mode, origin and frozen weights as they were."""
    new.train(old.training)
    new.origin = old.origin
    before, after = dict(old.named_parameters()), dict(new.named_parameters())
    for name in [name for name in kept if name in after]:
        after[name].requires_grad_(before[name].requires_grad)


def _report(work: Work, made: dict[str, Piece], kept: tuple[str, ...]) -> Report:
    alike, used = set(kept), {source for piece in made.values() for source in piece.sources}
    return Report(
        kept=kept,
        converted=tuple((k, _how(k, made[k])) for k in work.shapes if k in made and k not in alike),
        fresh=tuple(k for k in work.shapes if k not in made),
        dropped=tuple(k for k in work.state if k not in used),
    )


def _how(key: str, piece: Piece) -> str:
    """What was done, in words; a weight that stands elsewhere now says where it stood."""
    alone = piece.sources if len(piece.sources) == 1 and piece.sources != (key,) else ()
    return "; ".join([*(f"from {source}" for source in alone), *piece.said])
