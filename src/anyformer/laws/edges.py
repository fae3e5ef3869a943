"""Law 8: rows without anything to see, of length 1, shorter than every k and window."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.laws.broken import all_same, finite, finite_each, same
from anyformer.laws.cases import Case, Side, answers, case, each, pooled, twin
from anyformer.laws.order import paths_of_attentions
from anyformer.laws.padding import gradients, weighed

FAR = 999  # beyond every length


def law_short(spec: S.Model, seed: int) -> None:
    """8: one position, alone and beside a longer context: finite outputs and gradients."""
    c = case(spec, seed, length=1)
    _finite(c, _outputs(c))


def law_masked_row(spec: S.Model, seed: int) -> None:
    """8: a row of padding only is finite, has finite gradients and leaves other rows alone."""
    c = case(spec, seed)
    side = c.rng.choice([s for s in (c.main, c.other) if s is not None])
    if side.is_image:
        return
    mask = torch.ones(side.x.shape[:2], dtype=torch.long)
    mask[0] = 0
    hidden = _outputs(c, **{side.mask: mask})
    with torch.inference_mode():
        alone = c.once("outputs", lambda: _outputs(c))
    for found, wanted in zip(hidden, alone, strict=True):
        same(found[1:], wanted[1:], "the row beside one that is hidden")
    _finite(c, hidden)
    _moves_nothing(c, side, mask, hidden)


def _moves_nothing(c: Case, side: Side, mask: Tensor, hidden: list[Tensor]) -> None:
    """What stands in a hidden row of a context changes nothing."""
    if side is c.main:
        return
    moved = side.x.flip(1) if side.name == "input_ids" else side.x + 1
    other = dataclasses.replace(side, x=torch.cat([moved[:1], side.x[1:]]))
    found = _outputs(dataclasses.replace(c, other=other), **{side.mask: mask})
    all_same(found, hidden, "a context that nobody sees")


def _far(spec: S.Model) -> tuple[S.Model, S.Model]:
    """The spec with every k and window beyond the row, and with none."""
    wide, plain = spec, spec
    for path in paths_of_attentions(spec):
        weigh = S.get(spec, f"{path}.weigh")
        if isinstance(weigh, S.TopK):
            wide = S.override(wide, f"{path}.weigh", S.TopK(k=FAR))
            plain = S.override(plain, f"{path}.weigh", S.Softmax())
        if S.get(spec, f"{path}.window") is not None:
            wide = S.override(wide, f"{path}.window", FAR)
            plain = S.override(plain, f"{path}.window", None)
    return wide, plain


def chooses(spec: S.Model) -> bool:
    """Whether some attention has a k or a window."""
    wide, plain = _far(spec)
    return wide != plain


def law_far(spec: S.Model, seed: int) -> None:
    """8: top-k over fewer keys than k is softmax, a window wider than the row is none."""
    wide, plain = _far(spec)
    c = case(wide, seed)
    all_same(c.plain(), answers(c, twin(c.model, plain)), "far k and windows")


def _outputs(c: Case, **more: Tensor) -> list[Tensor]:
    out = c(**more)
    return [*each(out), *pooled(out)]


def _finite(c: Case, outputs: list[Tensor]) -> None:
    finite(outputs, "outputs")
    finite_each(gradients(c, weighed(outputs)), "gradients of {}")
