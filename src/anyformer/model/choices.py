"""Multiple choice: C sequences for each row, read as B·C rows.

Letters: B batch, C choices, N positions.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.checks import SOURCE, TARGET
from anyformer.model.inputs import Inputs
from anyformer.model.output import Output

RANKS = {"inputs_embeds": 4, "input_values": 4, "pixel_values": 5, "prefix_lengths": 2}
RANKS |= {"mc_token_ids": 2}


def flatten(spec: S.Model, given: Inputs) -> tuple[Inputs, int]:
    """Inputs (B, C, ...) as (B·C, ...) and C; with another head the inputs as they are, and 1."""
    if not isinstance(spec.head, S.Choices | S.Double):
        return given, 1
    there = {n: getattr(given, n) for n in (*SOURCE, *TARGET, "attention_mask", "mc_token_ids")}
    there = {name: value for name, value in there.items() if value is not None}
    for name, value in there.items():
        _check(name, value, RANKS.get(name, 3))
    sizes = {tuple(value.shape[:2]) for value in there.values()}
    if len(sizes) > 1:
        raise InputError(f"the inputs have {len(sizes)} shapes (batch, choices): {sorted(sizes)}")
    flat = {name: value.flatten(0, 1) for name, value in there.items()}
    return replace(given, **flat), next(iter(sizes))[1] if sizes else 1


def unflatten(spec: S.Model, out: Output, choices: int) -> None:
    """Answers of B·C rows as (B, C, ...), where the head chooses among sequences."""
    if isinstance(spec.head, S.Choices | S.Double) and out.logits is not None:
        rest = () if isinstance(spec.head, S.Choices) else out.logits.shape[1:]
        out.logits = out.logits.view(-1, choices, *rest)
    if out.mc_logits is not None:
        out.mc_logits = out.mc_logits.view(-1, choices)


def _check(name: str, value: Tensor, rank: int) -> None:
    if value.dim() != rank:
        raise InputError(
            f"{name} must have {rank} axes, batch and choices first, not {tuple(value.shape)}: "
            "this model chooses among the sequences of a row"
        )
