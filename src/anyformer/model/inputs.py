"""What a model is called with: Hugging Face's argument names, checked before any compute."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.errors import InputError, known_or_raise
from anyformer.parts.state import Past


@dataclass
class Inputs:
    """The arguments of one call. B batch, N positions, K remembered and new positions."""

    input_ids: Tensor | None = None  # (B, N)
    inputs_embeds: Tensor | None = None  # (B, N, E), in place of input_ids
    input_values: Tensor | None = None  # (B, N, size)
    pixel_values: Tensor | None = None  # (B, C, H, W)
    bool_masked_pos: Tensor | None = None  # (B, patches): those that are hidden
    attention_mask: Tensor | None = None  # (B, N or K), 1 for real positions
    token_type_ids: Tensor | None = None  # (B, N)
    langs: Tensor | None = None  # (B, N): ids of languages
    position_ids: Tensor | None = None  # (1 or B, N)
    document_ids: Tensor | None = None  # (B, N): packed rows, documents don't see each other
    prefix_lengths: Tensor | None = None  # (B,): a prefix that is seen from both sides
    decoder_input_ids: Tensor | None = None
    decoder_attention_mask: Tensor | None = None
    encoder_hidden_states: Tensor | None = None  # (B, M, d), in place of the encoder's work
    encoder_attention_mask: Tensor | None = None  # (B, M)
    labels: Tensor | None = None
    targets: Tensor | None = None  # (B, N): ids that each position should say; -100: nothing
    targets_at: Tensor | None = None  # (K,) of B·N positions: those that are asked, if known
    next_sentence_label: Tensor | None = None  # (B,): 0 where the second sentence follows
    sentence_order_label: Tensor | None = None  # (B,): 0 where the sentences are in order
    mc_token_ids: Tensor | None = None  # (B, C): the position that tells of a choice
    mc_labels: Tensor | None = None  # (B,): the right choice
    start_positions: Tensor | None = None  # (B,): where answers start, from N on: they don't
    end_positions: Tensor | None = None  # (B,)
    cls_index: Tensor | None = None  # (B,): the position that tells whether there is an answer
    is_impossible: Tensor | None = None  # (B,): 1 where there is none
    p_mask: Tensor | None = None  # (B, N): 1 where no answer may be
    past_key_values: Past | None = None
    use_cache: bool = False
    mems: Past | None = None
    return_mems: bool = False
    mem_len: int | None = None  # positions that mems keep; None: stack.recurrence
    same_length: bool = False  # each position sees mem_len keys, its own among them, and no more
    logits_to_keep: int = 0  # last positions that a vocabulary's logits are for; 0: all
    output_hidden_states: bool = False
    output_attentions: bool = False
    return_dict: bool | None = None  # False: the answer is a tuple


TYPES = {f.name: str(f.type) for f in fields(Inputs)}  # once: a compiled graph can't ask


def signed(*labels: str) -> Callable[[Any], Any]:
    """Give a forward a signature of all arguments, of those named after labels only these.

    Libraries that feed a model, as transformers' Trainer does, look there for what it takes, and
    count a batch as labelled where it has all labels of the signature.
    """
    made = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for f in fields(Inputs):
        if "label" not in f.name or f.name in labels:
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            kind = kind if f.name == "input_ids" else inspect.Parameter.KEYWORD_ONLY
            made.append(inspect.Parameter(f.name, kind, default=f.default, annotation=f.type))

    def sign(forward: Any) -> Any:
        forward.__signature__ = inspect.Signature(made)
        return forward

    return sign


@dataclass
class Sequence:
    """What one stack reads."""

    x: Tensor  # ids, values or an image
    name: str  # of x among the arguments
    mask: Tensor | None = None
    types: Tensor | None = None
    langs: Tensor | None = None
    positions: Tensor | None = None
    documents: Tensor | None = None
    prefix: Tensor | None = None

    @property
    def embedded(self) -> bool:
        """Whether x needs no token table."""
        return self.name == "inputs_embeds"


def read(input_ids: Tensor | None, named: dict[str, Any]) -> Inputs:
    """The arguments of a call, unknown names and what is no tensor refused."""
    for name, value in named.items():
        known_or_raise(name, TYPES, "argument of the model", InputError)
        _check_type(name, value, TYPES[name])
    _check_type("input_ids", input_ids, "Tensor")
    return Inputs(input_ids=input_ids, **named)


def _check_type(name: str, value: Any, kind: str) -> None:
    if value is None:
        return
    if kind.startswith("Tensor") and not isinstance(value, Tensor):
        raise InputError(f"{name} must be a tensor, not {type(value).__name__}")
    if kind.startswith("Past") and not isinstance(value, Past):
        raise InputError(
            f"{name} must be what an earlier call returned, not {type(value).__name__}"
        )


def source_of(spec: S.Model, given: Inputs) -> Sequence:
    """The sequence that a model without encoder, or an encoder, reads."""
    x, name = _main(spec, given)
    return Sequence(
        x,
        name,
        given.attention_mask,
        given.token_type_ids,
        given.langs,
        given.position_ids,
        given.document_ids,
        given.prefix_lengths,
    )


def target_of(given: Inputs) -> Sequence:
    """The sequence that the decoder of an encoder-decoder reads."""
    if given.decoder_input_ids is None:
        raise InputError("an encoder-decoder needs decoder_input_ids beside the encoder's input")
    return Sequence(given.decoder_input_ids, "decoder_input_ids", mask=given.decoder_attention_mask)


NAMES = {S.Tokens: "input_ids", S.Patches: "pixel_values", S.Values: "input_values"}


def _main(spec: S.Model, given: Inputs) -> tuple[Tensor, str]:
    wanted = NAMES[type(spec.embed.source)]
    allowed = {wanted, "inputs_embeds"} if wanted == "input_ids" else {wanted}
    names = ("input_ids", "inputs_embeds", "input_values", "pixel_values")
    there = [n for n in names if getattr(given, n) is not None]
    wrong = [n for n in there if n not in allowed]
    if wrong or len(there) != 1:
        got = ", ".join(there) or "nothing"
        raise InputError(f"this model reads {' or '.join(sorted(allowed))}, one of them; got {got}")
    return getattr(given, there[0]), there[0]


def check_sequence(spec: S.Model, seq: Sequence, past: Past | None) -> None:
    """Raise where a sequence can't be read: rank, dtype, range, length, shapes that disagree."""
    source = spec.embed.source
    if isinstance(source, S.Patches):
        _check_image(seq.x, source)
        rows = (source.image // source.patch) ** 2 + source.cls
    else:
        _check_rows(spec, seq)
        rows = seq.x.shape[1]
    if rows == 0 or seq.x.shape[0] == 0:
        raise InputError(f"{seq.name} are empty: a row and a position are needed at least")
    _check_length(spec, seq, rows, past)
    _check_companions(seq, rows, past, spec)


def _check_image(x: Tensor, source: S.Patches) -> None:
    want = (source.channels, source.image, source.image)
    if x.dim() != 4 or tuple(x.shape[1:]) != want or not x.is_floating_point():
        raise InputError(
            f"pixel_values must be floats of shape (batch, {', '.join(map(str, want))}), "
            f"not {x.dtype} {tuple(x.shape)}"
        )


def _check_rows(spec: S.Model, seq: Sequence) -> None:
    source, x = spec.embed.source, seq.x
    if isinstance(source, S.Tokens) and not seq.embedded:
        check_ids(seq.name, x, source.vocab)
        return
    banded = isinstance(source, S.Tokens) and bool(source.cutoffs)
    width = spec.dim if banded else spec.embed.dim or spec.dim
    size = source.size if isinstance(source, S.Values) and source.size is not None else width
    if x.dim() != 3 or x.shape[-1] != size or not x.is_floating_point():
        raise InputError(
            f"{seq.name} must be floats of shape (batch, length, {size}), "
            f"not {x.dtype} {tuple(x.shape)}"
        )


def check_ids(name: str, ids: Tensor, count: int) -> None:
    """Raise unless ids are integers (B, N) from 0 up to count."""
    if ids.dim() != 2 or ids.dtype not in (torch.int64, torch.int32):
        raise InputError(
            f"{name} must be integers of shape (batch, length), not {ids.dtype} {tuple(ids.shape)}"
        )
    if readable(ids) and ids.numel():
        low, high = (int(v) for v in ids.aminmax())
        if low < 0 or high >= count:
            raise InputError(f"{name} hold {low if low < 0 else high}, outside 0..{count - 1}")


def readable(x: Tensor) -> bool:
    """Whether values may be looked at without waiting for a device or breaking a compiled graph."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def position_limit(spec: S.Model) -> int | None:
    """The number of positions that a model can tell apart; None if any."""
    places = (spec.embed.position, spec.stack.untied)
    limits = [p.length for p in places if isinstance(p, (S.Learned, S.Untied))]
    return min(limits) if limits else None


def _check_length(spec: S.Model, seq: Sequence, rows: int, past: Past | None) -> None:
    limit, seen = position_limit(spec), past.seen if past is not None else 0
    if seq.positions is not None:
        if readable(seq.positions):
            _check_positions(seq.positions, limit)
    elif limit is not None and seen + rows > limit:
        raise InputError(
            f"{seq.name} reach {seen + rows} positions, but the model has {limit}: shorten the "
            f"input, or build it with a greater position length or with relative positions"
        )


def _check_positions(positions: Tensor, limit: int | None) -> None:
    low, high = (int(v) for v in positions.aminmax())
    if low < 0:
        raise InputError(f"position_ids hold {low}: they start at 0")
    if limit is not None and high >= limit:
        raise InputError(f"position_ids reach {high}, beyond {limit - 1}")


def _check_companions(seq: Sequence, rows: int, past: Past | None, spec: S.Model) -> None:
    batch = seq.x.shape[0]
    total = rows + (past.length if past is not None else 0)
    memory = spec.embed.memory if past is not None else 0
    mask_name = "decoder_attention_mask" if seq.name.startswith("decoder") else "attention_mask"
    shaped(mask_name, seq.mask, [(batch, rows), (batch, total), (batch, total - memory)])
    shaped("token_type_ids", seq.types, [(batch, rows)])
    shaped("langs", seq.langs, [(batch, rows)])
    shaped("position_ids", seq.positions, [(batch, rows), (1, rows)])
    shaped("document_ids", seq.documents, [(batch, rows)])
    shaped("prefix_lengths", seq.prefix, [(batch,)])
    if seq.types is not None:
        if not spec.embed.types:
            raise InputError("this model has no token types: leave token_type_ids out")
        check_ids("token_type_ids", seq.types, spec.embed.types)
    if seq.langs is not None:
        if not spec.embed.langs:
            raise InputError("this model has no vectors for languages: leave langs out")
        check_ids("langs", seq.langs, spec.embed.langs)
    if seq.documents is not None and (past is not None or spec.embed.memory):
        raise InputError("document_ids don't go with a cache, memories or memory tokens")
    if seq.prefix is not None and past is not None:
        raise InputError("prefix_lengths don't go with a cache or memories: give the whole row")


def shaped(name: str, value: Tensor | None, shapes: list[tuple[int, ...]]) -> None:
    """Raise unless a value is None, or integers or booleans of one of the shapes."""
    if value is None:
        return
    if tuple(value.shape) not in shapes:
        wanted = " or ".join(str(s) for s in dict.fromkeys(shapes))
        raise InputError(f"{name} must have shape {wanted}, not {tuple(value.shape)}")
    if value.is_floating_point() or value.is_complex():
        raise InputError(f"{name} must hold integers or booleans, not {value.dtype}")
