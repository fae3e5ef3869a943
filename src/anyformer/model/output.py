"""What a model returns: named fields, also by index and by key, those that are None left out.

It is a dict, since libraries that train a model look for one, with a tuple's indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor
from torch.utils import _pytree as tree  # FSDP2 looks for an output's tensors with it

from anyformer.parts.state import Past

HEADS = (
    "logits",
    "target_loss",
    "prediction_logits",
    "start_logits",
    "start_top_index",
    "reconstruction",
)


@dataclass
class Output(dict[str, Any]):
    """The answers of one call, under Hugging Face's names."""

    loss: Tensor | None = None
    mc_loss: Tensor | None = None  # of choices, beside that of tokens
    target_loss: Tensor | None = None  # (): the sum over targets, in place of many logits
    target_hits: Tensor | None = None  # (): how many of them are the likeliest
    logits: Tensor | None = None  # (B, N, V), (B, C), (B, N, size) or (B, C, N, V)
    mc_logits: Tensor | None = None  # (B, C), beside the tokens'
    prediction_logits: Tensor | None = None  # (B, N, V), beside one of the next two
    seq_relationship_logits: Tensor | None = None  # (B, 2)
    sop_logits: Tensor | None = None  # (B, 2)
    start_logits: Tensor | None = None  # (B, N)
    end_logits: Tensor | None = None  # (B, N)
    start_top_log_probs: Tensor | None = None  # (B, s): probabilities, whatever the name says
    start_top_index: Tensor | None = None
    end_top_log_probs: Tensor | None = None  # (B, e·s)
    end_top_index: Tensor | None = None
    cls_logits: Tensor | None = None  # (B,)
    reconstruction: Tensor | None = None  # (B, C, H, W): an image again
    last_hidden_state: Tensor | None = None  # (B, N, d)
    pooler_output: Tensor | None = None  # (B, d)
    past_key_values: Past | None = None
    mems: Past | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    encoder_last_hidden_state: Tensor | None = None
    extra: dict[str, Tensor] | None = None  # sums over positions that loops add to the loss
    exits: tuple[Tensor, Tensor] | None = None  # logits (R, B, N, V) of rounds, p (B, N, R)

    def __post_init__(self) -> None:
        if isinstance(self.loss, dict):  # a mapping of fields, as a dict is made of one
            fields_given, self.loss = self.loss, None
            for name, value in fields_given.items():
                setattr(self, name, value)

    def keys(self) -> list[str]:  # type: ignore[override]
        """The names of the fields that are there; what a head has read is not listed."""
        there = [f.name for f in fields(self) if getattr(self, f.name) is not None]
        if any(name in there for name in HEADS):
            return [name for name in there if name != "last_hidden_state"]
        return there

    def values(self) -> list[Any]:  # type: ignore[override]
        """The fields that are listed, in order."""
        return [getattr(self, name) for name in self.keys()]

    def items(self) -> list[tuple[str, Any]]:  # type: ignore[override]
        """The names and the fields that are listed, in order."""
        return [(name, getattr(self, name)) for name in self.keys()]

    def get(self, key: str, default: Any = None) -> Any:
        """A field by name, or the default where it is not there."""
        return self[key] if key in self else default

    def to_tuple(self) -> tuple[Any, ...]:
        """The fields that are listed, in order."""
        return tuple(self.values())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in NAMES and getattr(self, str(name)) is not None

    def __len__(self) -> int:
        return len(self.keys())

    def __getitem__(self, at: str | int | slice) -> Any:
        if isinstance(at, str):
            if at not in self:
                raise KeyError(at)
            return getattr(self, at)
        return self.to_tuple()[at]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in NAMES:
            raise KeyError(name)
        setattr(self, name, value)


NAMES = tuple(f.name for f in fields(Output))


def _taken_apart(out: Output) -> tuple[list[Any], tuple[str, ...]]:
    there = tuple(name for name in NAMES if getattr(out, name) is not None)
    return [getattr(out, name) for name in there], there


def _put_together(values: Any, there: Any) -> Output:
    return Output(**dict(zip(there, values, strict=True)))


tree.register_pytree_node(
    Output, _taken_apart, _put_together, serialized_type_name="anyformer.Output"
)
