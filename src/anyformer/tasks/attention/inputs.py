"""What a model is called with for a picture: ids or pixels, and a name for each position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.model.model import Model
from anyformer.model.shift import shift_right
from anyformer.objectives.about import pixels_in
from anyformer.objectives.image import Pictures

TOKENS = 128  # more are not drawn unless asked for
NEW = 32  # tokens of the model's own answer, where no target is given
SEEN = str.maketrans({"\n": "↵", "\t": "⇥", "\r": "↵"})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to be looked at."""

    text: str | Sequence[int] | None
    target: str | Sequence[int] | None
    image: Any
    tokenizer: Tokenizer | None
    first: int | None
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.first is not None and self.first < 1:
            raise InputError(f"first={self.first}: take the first token at least")


@dataclass(frozen=True)
class Ready:
    """The arguments of a call, and the names of the positions of both stacks."""

    call: dict[str, Tensor]
    source: tuple[str, ...]  # of the encoder, where there is one
    target: tuple[str, ...]  # of the decoder; empty where there is no encoder
    words: str  # all of it as it is read
    image: Tensor | None = None  # (3, H, W) from 0 to 1
    side: int = 0  # patches of the image along a side


def ready(model: Model, asked: Asked) -> Ready:
    """The input as the model reads it."""
    spec = model.spec if model.encoder is None else model.encoder.spec
    device = next(model.parameters()).device
    source = spec.embed.source
    picture, side, words = None, 0, "an image"
    if isinstance(source, S.Patches):
        pixels, picture = _pixels(source, asked)
        pixels = pixels.to(device, next(model.parameters()).dtype)
        call, names, side = {"pixel_values": pixels}, patches(source), source.image // source.patch
        written = asked.text if asked.target is None else asked.target
    elif isinstance(source, S.Tokens):
        if asked.image is not None:
            raise InputError("this model reads text, not images: leave the image out")
        ids = _ids(asked.text, "text", asked)
        call, names = {"input_ids": torch.tensor([ids], device=device)}, named(ids, asked.tokenizer)
        written, words = asked.target, _words(ids, asked.tokenizer)
    else:
        raise InputError("this model reads vectors: a picture is made of text or of an image")
    if model.encoder is None:
        if written is not None and (asked.target is not None or isinstance(source, S.Patches)):
            raise InputError("this model has no decoder beside an encoder: leave the target out")
        return Ready(call, names, (), words, picture, side)
    call["decoder_input_ids"] = ids = _decoder_ids(model, call, written, asked)
    answer: list[int] = ids[0].tolist()
    words = f"{words} → {_words(answer, asked.tokenizer)}"
    return Ready(call, names, named(answer, asked.tokenizer), words, picture, side)


def named(ids: Sequence[int], tokenizer: Tokenizer | None) -> tuple[str, ...]:
    """A readable name of each id: its text, else its token, else the number."""
    if tokenizer is None:
        return tuple(map(str, ids))
    return tuple(_name(id, tokenizer) for id in ids)


def patches(source: S.Patches) -> tuple[str, ...]:
    """Names of patches by row and column, counted from 0."""
    side = range(source.image // source.patch)
    cells = (f"patch {row},{column}" for row in side for column in side)
    return (*(["class token"] if source.cls else []), *cells)


def _words(ids: Sequence[int], tokenizer: Tokenizer | None) -> str:
    return " ".join(map(str, ids)) if tokenizer is None else tokenizer.decode(ids)


def _name(id: int, tokenizer: Tokenizer) -> str:
    raw = tokenizer.token(id) or str(id)
    text = tokenizer.decode([id], skip_special=False)
    if not text or "\N{REPLACEMENT CHARACTER}" in text:  # a part of a character
        return raw
    shown = text.strip(" ") or "␣"
    return shown.translate(SEEN)


def _ids(text: str | Sequence[int] | None, what: str, asked: Asked) -> list[int]:
    """The ids of a text with its special tokens, or those that are given."""
    if text is None or not len(text):
        raise InputError(f"there is no {what} to look at: give some words")
    if not isinstance(text, str):
        ids = [int(id) for id in text][: asked.first]
    elif asked.tokenizer is None:
        raise InputError(f"a {what} needs a tokenizer: pass tokenizer=anyformer.tokenizer(folder)")
    else:
        ids = list(asked.tokenizer(text, max_length=asked.first)["input_ids"])
    if not ids:
        raise InputError(f"the {what} {str(text)[:40]!r} has no token: give some words")
    if asked.first is None and len(ids) > TOKENS:
        raise InputError(
            f"the {what} has {len(ids)} tokens, and a picture of more than {TOKENS} is hard to "
            f"read: shorten it, or take its first ones (--first {TOKENS}; first={TOKENS})"
        )
    return ids


def _decoder_ids(
    model: Model, call: dict[str, Tensor], target: str | Sequence[int] | None, asked: Asked
) -> Tensor:
    """What the decoder reads: the target behind its start, else what the model itself answers."""
    spec, device = model.spec, next(model.parameters()).device
    if target is not None:
        ids = torch.tensor([_ids(target, "target", asked)], device=device)
        if spec.start is None or not isinstance(target, str):
            return ids
        return shift_right(ids, spec.start, spec.pad)
    if isinstance(spec.head, S.Classes | S.Span) and spec.start is not None:
        return shift_right(call["input_ids"], spec.start, spec.pad)
    if not isinstance(spec.start, int) or not isinstance(spec.head, S.Vocabulary):
        raise InputError("this encoder-decoder needs a text for its decoder: give a target")
    start = torch.tensor([[spec.start]], device=device)
    end = None if asked.tokenizer is None else asked.tokenizer.role_ids.get("eos")
    new = min(NEW, asked.first or NEW)
    options = {"max_new_tokens": new, "eos_token_id": end, "decoder_input_ids": start}
    return model.generate(**call, **options)[:, :new]


def _pixels(source: S.Patches, asked: Asked) -> tuple[Tensor, Tensor]:
    """The image (1, C, H, W) in the size and scale that the model reads; and to be seen."""
    if asked.image is None:
        raise InputError("this model reads images: give one (--image FILE; image=)")
    scale = _scale(asked.folder)
    pictures = Pictures(source, 255.0, scale["mean"], scale["std"])
    pixels = torch.from_numpy(pictures({"image": asked.image}, "image"))
    mean, std = (torch.tensor(scale[name]).view(-1, 1, 1) for name in ("mean", "std"))
    seen = (pixels * std + mean).clamp(0, 1)
    seen = seen if source.channels == 3 else seen.mean(0, keepdim=True).expand(3, -1, -1)
    return pixels[None], seen


def _scale(folder: Path | None) -> dict[str, tuple[float, ...]]:
    """The mean and deviation of the pixels that a folder's model was trained with."""
    told = {} if folder is None else pixels_in(folder)
    return {"mean": (0.5,), "std": (0.5,)} | told
