"""The classes of x-transformers over anyformer's models: they translate names, and compute nothing.

`from anyformer.compat.x_transformers import TransformerWrapper, Decoder` in place of
`from x_transformers import …`. docs/x_transformers.md says what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.compat import describe, weights
from anyformer.compat.layers import (
    ARGUMENTS,
    CrossAttender,
    Decoder,
    Encoder,
    Layers,
    named_arguments,
)
from anyformer.compat.sampling import sampling, targets, top_k, top_p
from anyformer.compat.words import apply
from anyformer.errors import InputError
from anyformer.model.model import Model
from anyformer.model.output import Output
from anyformer.model.stack import Stack
from anyformer.parts import build

__all__ = [
    "AutoregressiveWrapper",
    "ContinuousTransformerWrapper",
    "CrossAttender",
    "Decoder",
    "Encoder",
    "TransformerWrapper",
    "ViTransformerWrapper",
    "XTransformer",
    "load_state_dict",
    "state_dict",
    "top_k",
    "top_p",
]


class _Wrapper(nn.Module):
    """A whole model around layers, whose weights it uses; abstract."""

    def __init__(self, spec: S.Model, attn_layers: nn.Module, keywords: dict[str, Any]):
        super().__init__()
        describe.only_wrapper(keywords, type(self).__name__)
        self.spec = S.check(apply(spec, keywords, new=True))
        assert isinstance(attn_layers, Layers)
        self.model = Model(self.spec, stack=_shared(attn_layers.model.stack, self.spec))

    def _answer(self, out: Output, return_embeddings: bool) -> Tensor:
        found = out.last_hidden_state if return_embeddings or out.logits is None else out.logits
        assert found is not None
        return found


def _spec_of(attn_layers: Any) -> S.Model:
    if not isinstance(attn_layers, Layers):
        raise InputError(
            f"attn_layers must be an Encoder, Decoder or CrossAttender, not {attn_layers!r}"
        )
    return attn_layers.spec


def _shared(stack: Stack, spec: S.Model) -> Stack:
    """A stack of the same modules with the final norm that the spec asks for."""
    with torch.device("meta"):
        shell = Stack(spec.stack, spec.dim)
    shell.blocks, shell.relative, shell.untied = stack.blocks, stack.relative, stack.untied
    final = spec.stack.final_norm
    shell.norm = None if final is None else build(final, spec.dim)
    return shell


class TransformerWrapper(_Wrapper):
    """Tokens in, logits (b, n, num_tokens) out."""

    def __init__(
        self, *, num_tokens: int, max_seq_len: int, attn_layers: nn.Module, **keywords: Any
    ):
        source, head = S.Tokens(vocab=num_tokens), S.Vocabulary(tied=False, bias=True)
        spec = describe.wrapped(_spec_of(attn_layers), source, max_seq_len, head)
        super().__init__(spec, attn_layers, keywords)

    def forward(
        self,
        x: Tensor,
        return_embeddings: bool = False,
        return_mems: bool = False,
        return_attn: bool = False,
        **named: Any,
    ) -> Any:
        """Logits, or (logits, mems) or (logits, attention weights) where asked for."""
        if return_mems and return_attn:
            raise InputError("ask for return_mems or for return_attn, not for both at once")
        asked = {"return_mems": return_mems, "output_attentions": return_attn}
        out = self.model(x, **asked, **named_arguments(named))
        answer = self._answer(out, return_embeddings)
        if return_mems:
            return answer, out.mems
        return (answer, list(out.attentions)) if return_attn else answer


class ContinuousTransformerWrapper(_Wrapper):
    """Vectors in, vectors (b, n, dim_out) out."""

    def __init__(
        self,
        *,
        max_seq_len: int,
        attn_layers: nn.Module,
        dim_in: int | None = None,
        dim_out: int | None = None,
        **keywords: Any,
    ):
        head = None if dim_out is None else S.Project(size=dim_out)
        spec = describe.wrapped(_spec_of(attn_layers), S.Values(size=dim_in), max_seq_len, head)
        super().__init__(spec, attn_layers, keywords)

    def forward(self, x: Tensor, return_embeddings: bool = False, **named: Any) -> Any:
        """Vectors (b, n, dim_in) -> (b, n, dim_out); with return_mems also the memories."""
        keep = bool(named.pop("return_mems", False))
        out = self.model(input_values=x, return_mems=keep, **named_arguments(named))
        answer = self._answer(out, return_embeddings)
        return (answer, out.mems) if keep else answer


class ViTransformerWrapper(_Wrapper):
    """Images (b, 3, image_size, image_size) in, logits (b, num_classes) out."""

    def __init__(
        self,
        *,
        image_size: int,
        patch_size: int,
        attn_layers: nn.Module,
        num_classes: int | None = None,
        **keywords: Any,
    ):
        layers = _spec_of(attn_layers)
        source = S.Patches(image=image_size, patch=patch_size)
        head = None
        if num_classes is not None:
            head = S.Classes(count=num_classes, hidden=4 * layers.dim)
        length = (image_size // patch_size) ** 2 + 1
        super().__init__(describe.wrapped(layers, source, length, head), attn_layers, keywords)

    def forward(self, img: Tensor, return_embeddings: bool = False) -> Tensor:
        """Logits; the stream (b, 1 + patches, dim) where asked for or without classes."""
        return self._answer(self.model(pixel_values=img), return_embeddings)


class XTransformer(nn.Module):
    """An encoder and a decoder of tokens; called with a source and a target, it gives the loss."""

    def __init__(self, *, dim: int, **keywords: Any):
        super().__init__()
        sizes = {
            name: keywords.pop(name)
            for name in [p + size for p in ("enc_", "dec_") for size in describe.SIZES]
            if name in keywords
        }
        self.spec = S.check(apply(describe.translator(dim, sizes), keywords, new=True))
        self.model = Model(self.spec)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
    ) -> Tensor:
        """Cross-entropy of each target token after the first, given those before it."""
        out = self.model(
            src,
            attention_mask=src_mask,
            decoder_input_ids=tgt[:, :-1],
            decoder_attention_mask=None if tgt_mask is None else tgt_mask[:, :-1],
            labels=targets(tgt, tgt_mask, -100),
        )
        return out.loss

    def generate(
        self,
        seq_in: Tensor,
        seq_out_start: Tensor,
        seq_len: int,
        src_mask: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        """The new tokens (b, ≤ seq_len) after seq_out_start; options as below."""
        chosen = sampling(self.model, options)
        given = {"attention_mask": src_mask, "decoder_input_ids": seq_out_start}
        ids = self.model.generate(seq_in, max_new_tokens=seq_len, **chosen, **given)
        return ids[:, seq_out_start.shape[1] :]


class AutoregressiveWrapper(nn.Module):
    """The next-token loss of a causal TransformerWrapper, and text from it."""

    def __init__(self, net: TransformerWrapper, ignore_index: int = -100, pad_value: int = 0):
        super().__init__()
        if not isinstance(net, TransformerWrapper):
            raise InputError(f"net must be a TransformerWrapper, not {type(net).__name__}")
        describe.only_causal(net.spec)
        self.net, self.spec = net, net.spec
        self.ignore_index, self.pad_value = ignore_index, pad_value

    def forward(self, x: Tensor, mask: Tensor | None = None, **named: Any) -> Tensor:
        """Cross-entropy of each of x (b, n) after the first, given those before it."""
        seen = x[:, :-1].masked_fill(x[:, :-1] == self.ignore_index, self.pad_value)
        wanted = targets(x, mask, self.ignore_index)
        logits = self.net(seen, mask=None if mask is None else mask[:, :-1], **named)
        return F.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=self.ignore_index
        )

    def generate(self, start_tokens: Tensor, seq_len: int, **options: Any) -> Tensor:
        """The new tokens (b, ≤ seq_len) after start_tokens (b, n), or (≤ seq_len,) after (n,).

        Options: eos_token, temperature (0: the likeliest token), filter_logits_fn (top_k or
        top_p), filter_thres, and mask, context, context_mask.
        """
        one = start_tokens.dim() == 1
        start = start_tokens[None] if one else start_tokens
        given = {name: options.pop(name) for name in ARGUMENTS if name in options}
        chosen = sampling(self.net.model, options)
        ids = self.net.model.generate(
            start, max_new_tokens=seq_len, **chosen, **named_arguments(given)
        )
        new = ids[:, start.shape[1] :]
        return new[0] if one else new


def load_state_dict(
    model: nn.Module, state: Mapping[str, Tensor], release: str = weights.LATEST
) -> None:
    """Fill one of the classes above with the state dict of x-transformers' class of that name."""
    weights.read(*_inner(model), state, release)


def state_dict(model: nn.Module, release: str = weights.LATEST) -> dict[str, Tensor]:
    """The state dict that x-transformers' class of that name loads; see docs/x_transformers.md."""
    return weights.write(*_inner(model), release)


def _inner(model: nn.Module) -> tuple[Model, str]:
    """The model inside, and how its keys are wrapped there."""
    if isinstance(model, AutoregressiveWrapper):
        return model.net.model, "loss"
    if isinstance(model, XTransformer):
        return model.model, "pair"
    if isinstance(model, (Layers, _Wrapper)):
        return model.model, "layers" if isinstance(model, Layers) else "wrapper"
    raise InputError(f"{type(model).__name__} is none of the classes of this module")
