"""The library's own folders: `anyformer.json`, the spec, and `model.safetensors`, the weights.

Complete or complain: what is missing, unknown or of another shape is named, with the file that
it should be in and the nearest known name.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from anyformer import spec as S
from anyformer.checkpoint import folder as folders
from anyformer.checkpoint import writer
from anyformer.checkpoint.fill import Watch, check, empty, fill, nothing
from anyformer.checkpoint.folder import INDEX, PICKLES, WEIGHTS
from anyformer.checkpoint.keymap import row
from anyformer.checkpoint.reader import Place
from anyformer.errors import AnyformerError, CheckpointError, UnsafeError
from anyformer.model.model import Model

FORMAT = 1  # of anyformer.json
SPEC = "anyformer.json"
SHOWN = 8  # problems that an error lists
WORKS = "What works: a folder that save_pretrained wrote, here or in Hugging Face's library."


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a model came from: what its folder said beyond the spec, for saving it back."""

    family: str
    task: str
    config: dict[str, Any]
    # weights of the file that the model has no use for
    spare: dict[str, Tensor] = dataclasses.field(default_factory=dict[str, Tensor], compare=False)


def save(model: Model, folder: Path, max_shard_size: int | str = writer.SHARD) -> None:
    """Write spec and weights to a folder, which is made where it is not there.

    Each file is written whole under another name and then renamed, so a reader never meets half
    a file, and the spec comes last.
    """
    about = {"format": FORMAT, "spec": S.to_dict(model.spec)}
    if isinstance(model.origin, Origin):
        kept = ("family", "task", "config")
        about["origin"] = {name: vars(model.origin)[name] for name in kept}
    units = [writer.unit({k: t}) for k, t in model.state_dict().items()]
    write(folder, units, max_shard_size, {SPEC: about})


def write(
    home: Path,
    units: list[writer.Unit],
    limit: int | str,
    about: dict[str, dict[str, Any]],
    watch: Watch = nothing,
) -> None:
    """Write tensors, then the JSON files about them."""
    writer.write(home, writer.shards(units, limit), about, save_file, watch)


def load(folder: Path, place: Place = Place(), watch: Watch = nothing) -> Model:
    """The model that one of our own folders holds."""
    folder = _native_folder(folder)
    spec, origin = _read_spec(folders.inside(folder, SPEC))
    model = _empty(spec, folder)
    found = folders.stored(folder)
    wanted = list(model.state_dict())
    _same_keys(wanted, list(found), folder / WEIGHTS)
    rows = [row(key, key) for key in wanted]
    check(model, rows, found, str(folder / SPEC))
    fill(model, rows, found, place, watch=watch)
    model.origin = origin
    return model.eval()


def _native_folder(name: str | os.PathLike[str]) -> Path:
    """A folder with both files; else an error that says what was found in its place."""
    folder = Path(name)
    if folder.is_file():
        if folder.suffix in PICKLES:
            told = f"{folders.command(folder.parent)}. {WORKS}"
            raise UnsafeError(f"{folder} is a pickle, which can run code: refused. {told}")
        raise CheckpointError(f"{folder} is a file: give the folder that it is in. {WORKS}")
    has = lambda *names: any((folder / name).is_file() for name in names)
    missing = [
        name for name, there in ((SPEC, has(SPEC)), (WEIGHTS, has(WEIGHTS, INDEX))) if not there
    ]
    if missing:
        pickled = SPEC in missing and folders.instead(folder)
        error = UnsafeError if pickled else CheckpointError
        raise error(f"{folder} has no {' and no '.join(missing)}{_instead(folder)}")
    return folder


def _instead(folder: Path) -> str:
    """What a folder without our files holds, in words."""
    if (folder / SPEC).is_file():
        return ": a save was cut short, or the file was lost. Save the model again."
    return folders.instead(folder) or f". {WORKS}"


def _read_spec(file: Path) -> tuple[S.Model, Origin | None]:
    """The spec of anyformer.json, and where the model came from before."""
    try:
        about = folders.read_json(file)
    except CheckpointError as error:
        raise CheckpointError(f"{error}. Save the model again") from error
    version = about.get("format")
    if version != FORMAT:
        raise CheckpointError(
            f"{file} has format {version!r}; this version of anyformer reads {FORMAT}: save "
            "the model again, with the version that wrote it"
        )
    try:
        spec = S.from_dict(about.get("spec"))
    except AnyformerError as error:
        raise CheckpointError(f"{file}: {error}") from error
    if not isinstance(spec, S.Model):
        raise CheckpointError(f"{file}: spec is not a Model, but {spec!r}")
    origin = about.get("origin")
    try:
        return spec, None if origin is None else Origin(**origin)
    except TypeError as error:
        raise CheckpointError(f"{file}: origin is not family, task and config") from error


def _empty(spec: S.Model, folder: Path) -> Model:
    """The model with shapes alone."""
    try:
        return empty(spec)
    except AnyformerError as error:
        raise CheckpointError(f"{folder / SPEC}: {error}") from error


def _same_keys(ours: list[str], theirs: list[str], file: Path) -> None:
    """Raise unless both have the same keys."""
    missing, unknown = set(ours) - set(theirs), set(theirs) - set(ours)
    number = len(missing) + len(unknown)
    if not number:
        return
    lacks = [key for key in ours if key in missing][:SHOWN]
    holds = [key for key in theirs if key in unknown][: SHOWN - len(lacks)]
    spare = list(unknown or theirs)[:1000]
    found = [f"lacks {key!r}{_nearest(key, spare)}" for key in lacks]
    found += [f"holds {key!r}, unknown to the model{_nearest(key, ours)}" for key in holds]
    more = f"; and {number - SHOWN} more" if number > SHOWN else ""
    raise CheckpointError(
        f"{file} {'; '.join(found)}{more}. It doesn't fit {SPEC}: save the model again"
    )


def _nearest(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), 1, 0.0)
    return f" (nearest: {near[0]!r})" if near else ""
