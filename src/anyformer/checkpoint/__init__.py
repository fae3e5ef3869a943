"""Models on disk: our own folders and Hugging Face's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyformer import spec as S
from anyformer.checkpoint import hub, huggingface, native, writer
from anyformer.checkpoint.fill import Watch, nothing
from anyformer.checkpoint.labels import Labels
from anyformer.checkpoint.reader import Place, place
from anyformer.checkpoint.recursion import recursive, untied, with_rounds
from anyformer.checkpoint.report import Report
from anyformer.checkpoint.swap import swap
from anyformer.errors import CheckpointError, known_or_raise
from anyformer.model.model import Model

if TYPE_CHECKING:
    import torch

__all__ = ["Report", "load", "recursive", "save", "swap", "untied", "with_rounds"]
FORMATS = ("anyformer", "huggingface")


def load(
    path_or_hub_name: str | os.PathLike[str],
    task: str | None = None,
    *,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    revision: str | None = None,
    override: Mapping[str, Any] | None = None,
    labels: Labels = None,
) -> Model:
    """The model of a folder or of a hub name (org/name, at a revision), in evaluation mode.

    A Hugging Face folder is read with the head that `task` names, else with its own, and with so
    many `labels` or labels of these names, else with those that it speaks of. Weights have the
    dtype of the file unless one is given, and go straight to the device.

    `override` changes the spec by dotted paths, {"stack.depth": 6}: weights that still fit are
    kept, others converted or drawn anew, and `report` of the model says which (see swap).
    """
    where = place(dtype, device)
    model = read(hub.folder_of(path_or_hub_name, revision), task, where, labels=labels)
    if override is None:
        return model
    spec = model.spec
    for path, value in override.items():
        spec = S.override(spec, path, value)
    return swap(model, spec, share=True)


def read(
    folder: Path, task: str | None, where: Place, watch: Watch = nothing, labels: Labels = None
) -> Model:
    """The model of a folder of either format."""
    if (folder / huggingface.CONFIG).is_file() and not (folder / native.SPEC).is_file():
        return huggingface.load(folder, task, where, watch, labels=labels)
    for name, value in (("task", task), ("labels", labels)):
        if value is not None:
            raise CheckpointError(
                f"{name}={value!r} is for Hugging Face folders; a folder of our own has the head "
                f"that it was saved with: leave {name} out"
            )
    return native.load(folder, where, watch)


def save(
    model: Model,
    folder: str | os.PathLike[str],
    format: str | None = None,
    max_shard_size: int | str = writer.SHARD,
) -> None:
    """Write a model to a folder: as Hugging Face's where it came from one, else as our own.

    Weights beyond `max_shard_size` bytes (5GB) are split into several files with an index.
    """
    known = isinstance(model.origin, native.Origin)
    chosen = format or ("huggingface" if known else "anyformer")
    if known_or_raise(chosen, FORMATS, "format", CheckpointError) == "anyformer":
        return native.save(model, Path(folder), max_shard_size)
    if not isinstance(model.origin, native.Origin):
        raise CheckpointError(
            "this model came from no Hugging Face folder, so its family is not known: save it in "
            "our own format, or set model.origin = Origin(family, task, {})"
        )
    huggingface.save(model, Path(folder), model.origin, max_shard_size)
