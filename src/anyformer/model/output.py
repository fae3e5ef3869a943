"""What a model returns: named fields, also by index and by key, those that are None left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from anyformer.parts.state import Past


@dataclass
class Output:
    """The answers of one call, under Hugging Face's names."""

    loss: Tensor | None = None
    logits: Tensor | None = None  # (B, N, V), (B, C) or (B, N, size)
    prediction_logits: Tensor | None = None  # (B, N, V), beside one of the next two
    seq_relationship_logits: Tensor | None = None  # (B, 2)
    sop_logits: Tensor | None = None  # (B, 2)
    start_logits: Tensor | None = None  # (B, N)
    end_logits: Tensor | None = None  # (B, N)
    last_hidden_state: Tensor | None = None  # (B, N, d)
    pooler_output: Tensor | None = None  # (B, d)
    past_key_values: Past | None = None
    mems: Past | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    encoder_last_hidden_state: Tensor | None = None

    def keys(self) -> list[str]:
        """The names of the fields that are there."""
        return [f.name for f in fields(self) if getattr(self, f.name) is not None]

    def to_tuple(self) -> tuple[Any, ...]:
        """The fields that are there, in order."""
        return tuple(getattr(self, name) for name in self.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __len__(self) -> int:
        return len(self.keys())

    def __getitem__(self, at: str | int | slice) -> Any:
        if isinstance(at, str):
            if at not in self.keys():
                raise KeyError(at)
            return getattr(self, at)
        return self.to_tuple()[at]
