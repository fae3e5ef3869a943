"""Stacks on their own: Encoder, Decoder and CrossAttender of x-transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from anyformer import spec as S
from anyformer.compat import describe
from anyformer.compat.words import apply
from anyformer.errors import InputError, known_or_raise
from anyformer.model.model import Model

ARGUMENTS = {  # theirs -> ours
    "mask": "attention_mask",
    "context": "encoder_hidden_states",
    "context_mask": "encoder_attention_mask",
    "mems": "mems",
    "pos": "position_ids",
}


def named_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call under the model's own names, those that are None left out."""
    for name in given:
        known_or_raise(name, ARGUMENTS, "argument", InputError)
    return {ARGUMENTS[name]: value for name, value in given.items() if value is not None}


class Layers(nn.Module):
    """A stack on its own, without embedding and final norm; abstract."""

    kinds: ClassVar[tuple[str, ...]]
    causal: ClassVar[bool] = False

    def __init__(self, *, dim: int, depth: int, heads: int = 8, **keywords: Any):
        super().__init__()
        describe.only_layers(keywords, type(self).__name__)
        plain = describe.layers(dim, depth, heads, self.kinds, self.causal)
        self.spec = S.check(apply(plain, keywords))
        self.model = Model(self.spec)

    def forward(self, x: Tensor, **named: Any) -> Tensor:
        """Vectors (b, n, dim) -> (b, n, dim); mask, context and context_mask by name."""
        out = self.model(input_values=x, **named_arguments(named))
        return out.last_hidden_state


class Encoder(Layers):
    """Self-attention that sees both ways, and feed-forward."""

    kinds = ("attention", "feedforward")


class Decoder(Layers):
    """Causal self-attention and feed-forward."""

    kinds = ("attention", "feedforward")
    causal = True


class CrossAttender(Layers):
    """Attention to a context, and feed-forward."""

    kinds = ("cross", "feedforward")
