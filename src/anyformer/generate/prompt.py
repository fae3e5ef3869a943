"""What is continued, and all that a model reads before its first new token.

Letters: B batch, N positions of the prompt.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.inputs import position_limit
from anyformer.model.model import Model
from anyformer.spec.walk import looks_back

SOURCES = (  # what a model may be given beside its prompt
    "attention_mask",
    "decoder_input_ids",
    "decoder_attention_mask",
    "encoder_hidden_states",
    "encoder_attention_mask",
    "pixel_values",
    "input_values",
    "mem_len",
)
Ids = Tensor | Sequence[Sequence[int]] | Sequence[Tensor]


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """Ids (B, N) that are continued, padded on the left, and the other arguments beside them."""

    ids: Tensor
    name: str = "input_ids"  # of the ids among the model's arguments
    given: dict[str, Any] = field(default_factory=dict)  # the others, those of an encoder too
    prefill: int | None = None  # positions that are read at a time; None: as memory allows

    def __post_init__(self) -> None:
        if self.prefill is not None and (type(self.prefill) is not int or self.prefill < 1):
            raise InputError(f"prefill must be an int of at least 1, not {self.prefill!r}")

    @property
    def mask_name(self) -> str:
        """What the mask of the ids is called among the model's arguments."""
        return self.name.replace("input_ids", "attention_mask")

    @property
    def keep(self) -> Tensor | None:
        """Which ids are real, (B, N); None if all are."""
        mask = self.given.get(self.mask_name)
        return None if mask is None or bool(mask.all()) else mask.bool()

    @property
    def first(self) -> dict[str, Any]:
        """All arguments of the model's first call."""
        return {self.name: self.ids, **self.given}

    def row(self, at: int) -> Prompt:
        """One row alone, without its padding."""
        part = lambda x: x[at : at + 1] if isinstance(x, Tensor) else x
        given = {name: part(value) for name, value in self.given.items()}
        ids, mask = part(self.ids), given.pop(self.mask_name, None)
        ids = ids if mask is None else ids[mask.bool()][None]
        return replace(self, ids=ids, given=given)

    def parts(self, size: int, memory: int = 0) -> list[Prompt]:
        """The ids some at a time, each with its part of the mask; the first one has all the rest.

        Where memory tokens stand before a row's first real id, the first part reaches up to those.
        """
        count, mask, first = self.ids.shape[1], self.given.get(self.mask_name), size
        if memory and self.keep is not None:
            first = max(size, int(self.keep.int().argmax(1).max()) + 1)
        cuts = [0, *range(first, count, size), count]
        found = []
        for low, high in itertools.pairwise(cuts):
            given = {} if low else self.given
            if mask is not None:
                given = {**given, self.mask_name: mask[:, low:high]}
            found.append(replace(self, ids=self.ids[:, low:high], given=given))
        return found


def prompt_of(
    model: Model,
    input_ids: Ids | None,
    given: dict[str, Any],
    start: int | None = None,
    fill: int = 0,
) -> Prompt:
    """The prompt of a call: the decoder's ids where there is an encoder, else the ids.

    Lists of ids are padded with `fill`: a prompt on the left, what an encoder reads on the right.
    """
    given = {name: value for name, value in given.items() if value is not None}
    device = next(model.parameters()).device
    if input_ids is not None:
        input_ids, mask = _tensor("input_ids", input_ids, fill, model.encoder is None, device)
        _masked("attention_mask", mask, given)
    if model.encoder is None:
        if input_ids is None:
            raise InputError("generate needs input_ids, the prompt to continue")
        return Prompt(ids=input_ids, given=given)
    if "decoder_input_ids" in given:
        name = "decoder_input_ids"
        ids, mask = _tensor(name, given.pop(name), fill, True, device)
        _masked("decoder_attention_mask", mask, given)
    else:
        ids = _start(model.spec, _rows(input_ids, given), start, device)
    given = given if input_ids is None else {"input_ids": input_ids, **given}
    return Prompt(ids=ids, name="decoder_input_ids", given=given)


def _tensor(
    name: str, rows: Ids, fill: int, left: bool, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Rows of ids as one tensor (B, N), and its mask where unequal ones were padded."""
    if isinstance(rows, Tensor):
        return rows, None
    listed = [row.tolist() if isinstance(row, Tensor) else row for row in rows]
    if not listed or not all(isinstance(row, Sequence) and len(row) for row in listed):
        raise InputError(
            f"{name} must be ids of shape (batch, length) or lists of them, with one id a row at "
            "least"
        )
    if any(type(i) is not int for row in listed for i in row):
        raise InputError(f"{name} must be integers")
    longest = max(map(len, listed))
    pad = lambda row, value: [value] * (longest - len(row))
    put = lambda row, value, own: pad(row, value) + own if left else own + pad(row, value)
    ids = torch.tensor([put(row, fill, list(row)) for row in listed], device=device)
    if all(len(row) == longest for row in listed):
        return ids, None
    return ids, torch.tensor([put(row, 0, [1] * len(row)) for row in listed], device=device)


def _masked(name: str, mask: Tensor | None, given: dict[str, Any]) -> None:
    """Keep a mask among the arguments."""
    if mask is not None:
        if name in given:
            raise InputError(f"leave {name} out: lists of ids are padded inside")
        given[name] = mask


def _rows(input_ids: Tensor | None, given: dict[str, Any]) -> int:
    """Rows of what the encoder reads, or of what it has given."""
    names = ("pixel_values", "input_values", "encoder_hidden_states")
    for value in (input_ids, *(given.get(name) for name in names)):
        if isinstance(value, Tensor):
            return value.shape[0]
    raise InputError("an encoder-decoder reads input_ids, pixel_values or input_values: give them")


def _start(spec: S.Model, rows: int, start: int | None, device: torch.device) -> Tensor:
    """One id a row (B, 1), with which the decoder begins."""
    found = spec.start if start is None else start
    if type(found) is not int:  # none, or one that depends on what is written
        raise InputError(
            "an encoder-decoder continues decoder_input_ids: give them or decoder_start_token_id, "
            "an id, since this model's spec has none as its start"
        )
    return torch.full((rows, 1), found, device=device)


def apart(spec: S.Model, prompt: Prompt) -> list[Prompt]:
    """The prompts as one, or each alone where a segment memory allows no padding before a row."""
    segments = spec.stack.primed or prompt.given.get("mem_len") is not None
    if prompt.keep is None or not segments or not (spec.stack.primed or spec.embed.memory):
        return [prompt]
    return [prompt.row(at) for at in range(len(prompt.ids))]


def check_prompt(model: Model, prompt: Prompt, new: int) -> None:
    """Raise where a model can't continue a prompt by `new` tokens, before anything is computed."""
    source, ids, name = model.spec.embed.source, prompt.ids, prompt.name
    if not isinstance(source, S.Tokens) or not isinstance(
        model.spec.head, S.Vocabulary | S.Adaptive
    ):
        raise InputError("generate needs a model that reads tokens and has a Vocabulary head")
    if not looks_back(model.spec.stack):
        raise InputError("generate needs a causal model: this one's attention looks ahead")
    if ids.dim() != 2 or ids.numel() == 0:
        raise InputError(f"{name} must be ids of shape (batch, length), with one id a row at least")
    limit, asked = position_limit(model.spec), ids.shape[1] + new - 1
    if limit is not None and asked > limit:
        raise InputError(
            f"max_new_tokens={new} after {ids.shape[1]} ids needs {asked} "
            f"positions, but the model has {limit}: ask for fewer or shorten the prompt"
        )
    mask = prompt.given.get(prompt.mask_name)
    if isinstance(mask, Tensor) and mask.shape == ids.shape and not bool(mask[:, -1].all()):
        raise InputError("attention_mask hides the last id of a prompt: pad prompts on the left")
