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
from anyformer.errors import AnyformerError
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
        words = any(isinstance(given, str) for given in (text, target))
        tokenizer = tokenizer or _tokenizer(model, folder, words)
    asked = Asked(
        text=text, target=target, image=image, tokenizer=tokenizer, first=first, folder=folder
    )
    with evaluating(model):
        given = ready(model, asked)
        maps = tuple(_heard(model, given))
    return Attended(title=title, text=given.words, maps=maps, image=given.image)


def _tokenizer(model: Model, folder: Path, words: bool) -> Tokenizer | None:
    """The tokenizer of a folder whose model reads or writes tokens; ids can do without one."""
    parts = [model.spec, *([] if model.spec.encoder is None else [model.spec.encoder])]
    if not any(isinstance(part.embed.source, Tokens) for part in parts):
        return None
    try:
        return beside(folder)
    except AnyformerError:
        if words:
            raise
        return None


def _heard(model: Model, given: Ready) -> list[Map]:
    """All attentions of one pass, an encoder's first."""
    with ExitStack() as hooks:
        own: Heard = hooks.enter_context(listening(model.stack))
        encoder = model.encoder and hooks.enter_context(listening(model.encoder.stack))
        model(**given.call)
    source, nothing = (given.source, given.side), ((), 0)
    if encoder is None:
        return list(maps_of(own, source, nothing, ""))
    first = maps_of(encoder, source, nothing, "encoder ")
    return [*first, *maps_of(own, (given.target, 0), source, "decoder ")]
