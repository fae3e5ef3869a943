"""Models on disk: our own folders and Hugging Face's."""

from __future__ import annotations

import os
from pathlib import Path

from anyformer.checkpoint import huggingface, native
from anyformer.errors import CheckpointError, known_or_raise
from anyformer.model.model import Model

__all__ = ["load", "save"]
FORMATS = ("anyformer", "huggingface")


def load(path_or_hub_name: str | os.PathLike[str], task: str | None = None) -> Model:
    """The model that a folder holds, in evaluation mode, each weight with the dtype of the file.

    A Hugging Face folder is read with the head that `task` names, else with its own.
    """
    folder = Path(path_or_hub_name)
    if (folder / huggingface.CONFIG).is_file() and not (folder / native.SPEC).is_file():
        return huggingface.load(folder, task)
    if task is not None:
        raise CheckpointError(
            f"task={task!r} is for Hugging Face folders; a folder of our own has the head that "
            "it was saved with: leave task out"
        )
    return native.load(folder)


def save(model: Model, folder: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a model to a folder: as Hugging Face's where it came from one, else as our own."""
    known = isinstance(model.origin, huggingface.Origin)
    chosen = format or ("huggingface" if known else "anyformer")
    if known_or_raise(chosen, FORMATS, "format", CheckpointError) == "anyformer":
        return native.save(model, folder)
    if not isinstance(model.origin, huggingface.Origin):
        raise CheckpointError(
            "this model came from no Hugging Face folder, so its family is not known: save it in "
            "our own format, or set model.origin = Origin(family, task, {})"
        )
    huggingface.save(model, Path(folder), model.origin)
