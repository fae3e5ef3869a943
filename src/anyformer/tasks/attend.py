"""What a model looks at: the attention of every layer and head over a text or an image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from anyformer.checkpoint import hub, load
from anyformer.checkpoint.tokenizer import tokenizer as beside
from anyformer.data.tokenizer import Tokenizer
from anyformer.generate.sample import evaluating
from anyformer.model.model import Model
from anyformer.spec import Tokens
from anyformer.tasks.attention.inputs import Asked, Ready, ready
from anyformer.tasks.attention.listen import Heard, listening, maps_of
from anyformer.tasks.attention.maps import Attended, Map

__all__ = ["Attended", "Map", "attend"]


@torch.no_grad()
def attend(
    model: Model | str | os.PathLike[str],
    text: str | Sequence[int] | None = None,
    *,
    target: str | Sequence[int] | None = None,
    image: Any = None,
    tokenizer: Tokenizer | None = None,
    first: int | None = None,
) -> Attended:
    """The attention weights of a model over a text or an image, to look at or to save as a page.

    The model is one that was built or loaded, or a folder or hub name, whose tokenizer is read
    with it. The decoder of an encoder-decoder reads `target`, else what the model itself answers.
    Texts are strings or ids; those beyond 128 tokens are refused unless `first` says how many
    tokens to take.
    """
    folder, title = None, "a model"
    if not isinstance(model, Model):
        folder, title = hub.folder_of(model), Path(model).name or str(model)
        model = load(folder)
        tokenizer = tokenizer or _tokenizer(model, folder)
    asked = Asked(
        text=text, target=target, image=image, tokenizer=tokenizer, first=first, folder=folder
    )
    with evaluating(model):
        given = ready(model, asked)
        maps = tuple(_heard(model, given))
    shown = " ".join(given.source) if image is None else "an image"
    shown = f"{shown} → {' '.join(given.target)}" if given.target else shown
    return Attended(title=title, text=shown, maps=maps)


def _tokenizer(model: Model, folder: Path) -> Tokenizer | None:
    """The tokenizer of a folder, where its model reads or writes tokens."""
    parts = [model.spec, *([] if model.spec.encoder is None else [model.spec.encoder])]
    return beside(folder) if any(isinstance(p.embed.source, Tokens) for p in parts) else None


def _heard(model: Model, given: Ready) -> list[Map]:
    """All attentions of one pass, an encoder's first."""
    with ExitStack() as hooks:
        own: Heard = hooks.enter_context(listening(model.stack))
        encoder = model.encoder and hooks.enter_context(listening(model.encoder.stack))
        model(**given.call)
    if encoder is None:
        return list(maps_of(own, given.source, (), ""))
    first = maps_of(encoder, given.source, (), "encoder ")
    return [*first, *maps_of(own, given.target, given.source, "decoder ")]
