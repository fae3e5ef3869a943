"""Encodings as lists under Hugging Face's names, padded where asked, or as torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anyformer.errors import InputError, known_or_raise

PADDING = ("longest", "max_length")
SIDES = ("left", "right")


@dataclass(frozen=True)
class Padding:
    """How rows of different lengths are made one length."""

    length: int  # every row gets at least this one
    side: str
    pad: int

    def fill(self, row: list[Any], value: Any) -> list[Any]:
        """The row with the value put before or behind it."""
        more = [value] * (self.length - len(row))
        return more + row if self.side == "left" else row + more


def padding_of(
    padding: bool | str, lengths: Sequence[int], max_length: int | None, side: str
) -> tuple[int, str] | None:
    """The common length and the side, or None where rows keep their lengths."""
    known_or_raise(side, SIDES, "side", InputError)
    if padding is False:
        return None
    how = "longest" if padding is True else known_or_raise(padding, PADDING, "padding", InputError)
    if how == "max_length" and max_length is None:
        raise InputError("padding='max_length' needs a max_length")
    return (max(lengths, default=0) if how == "longest" else int(max_length or 0)), side


def padded(columns: dict[str, list[list[Any]]], padding: Padding) -> dict[str, list[list[Any]]]:
    """Every column at one length; what is padding is 0 in the attention mask."""
    values: dict[str, Any] = {
        "input_ids": padding.pad,
        "special_tokens_mask": 1,
        "offset_mapping": (0, 0),
    }
    return {
        name: [padding.fill(row, values.get(name, 0)) for row in rows]
        for name, rows in columns.items()
    }


def as_tensors(columns: dict[str, list[list[Any]]]) -> dict[str, Any]:
    """Every column as one int64 tensor (rows, length); offsets have a last axis of 2."""
    import torch

    lengths = {len(row) for row in columns["input_ids"]}
    if len(lengths) > 1:
        raise InputError(
            f"rows of lengths {min(lengths)} to {max(lengths)} make no tensor: pass padding=True"
        )
    length = next(iter(lengths), 0)
    shape = {"offset_mapping": (len(columns["input_ids"]), length, 2)}
    plain = (len(columns["input_ids"]), length)
    return {
        name: torch.tensor(rows, dtype=torch.long).reshape(shape.get(name, plain))
        for name, rows in columns.items()
    }
