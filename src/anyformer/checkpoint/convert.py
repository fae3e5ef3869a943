"""From folder to folder: pickles to safetensors, one format to the other, one dtype to another."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from anyformer.checkpoint import FORMATS, hub, huggingface, native, pickles, read, writer
from anyformer.checkpoint import folder as folders
from anyformer.checkpoint.family import FAMILIES, Config
from anyformer.checkpoint.fill import Watch, nothing
from anyformer.checkpoint.reader import PLACES, Piece, Place, Stored
from anyformer.errors import CheckpointError, known_or_raise

COPIED = [*hub.TOKENIZER, "generation_config.json", "preprocessor_config.json"]


@dataclass(frozen=True)
class Source:
    """A folder that is to be converted, with its tensors."""

    folder: Path
    own: bool  # in our own format
    tensors: Stored

    @property
    def size(self) -> int:
        """The bytes of all tensors."""
        return sum(piece.size for piece in self.tensors.entries.values())


def source(name: str) -> Source:
    """What a folder or a hub name holds; pickles are opened, but nothing in them is run."""
    folder = hub.folder_of(name, wanted=hub.OLD)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is a file: give the folder that it is in")
    own = (folder / native.SPEC).is_file()
    if not own and not (folder / huggingface.CONFIG).is_file():
        raise CheckpointError(
            f"{folder} has neither {huggingface.CONFIG} nor {native.SPEC}: give a model's folder"
        )
    safe = any((folder / file).is_file() for file in (folders.WEIGHTS, folders.INDEX))
    old = not own and not safe and pickles.there(folder)
    return Source(folder, own, pickles.stored(folder) if old else folders.stored(folder))


def target(name: str, given: Source, force: bool) -> Path:
    """The folder to write, which must be new or empty unless it may be overwritten."""
    out = hub.at_home(name)
    if out.exists() and not out.is_dir():
        raise CheckpointError(f"{out} is a file: give a folder to write")
    if out.exists() and out.resolve() == given.folder.resolve():
        raise CheckpointError(f"{out} is the folder that is read: give another one to write")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise CheckpointError(f"{out} is not empty: give another folder, or --force to overwrite")
    return out


def convert(
    given: Source, out: Path, to: str | None, place: Place, watch: Watch = nothing
) -> list[str]:
    """Write a folder; the names of the files that are in it afterwards because of this.

    Between folders of Hugging Face every key stays as it is, those of other heads too.
    """
    chosen = to or ("anyformer" if given.own else "huggingface")
    known_or_raise(chosen, FORMATS, "format", CheckpointError)
    if given.own:
        model = read(given.folder, None, place, watch)
        if chosen == "huggingface" and not isinstance(model.origin, native.Origin):
            raise CheckpointError(
                f"{given.folder} is no model of a published family, so Hugging Face's library has "
                "no class for it: use --to anyformer, or load it in Python, set model.origin to "
                "its family (docs/families.md) and save it"
            )
        _save(model, out, chosen, watch)
    elif chosen == "anyformer":
        model = huggingface.load(given.folder, None, place, watch, given.tensors)
        _save(model, out, chosen, watch)
    else:
        _key_for_key(given, out, place, watch)
    return [*sorted(p.name for p in out.glob("*.safetensors")), *_copied(given.folder, out)]


def _save(model: huggingface.Model, out: Path, format: str, watch: Watch) -> None:
    model.save_pretrained(out, format)
    watch(sum(t.nbytes for t in model.state_dict().values()))


def _key_for_key(given: Source, out: Path, place: Place, watch: Watch) -> None:
    """Hugging Face's folder again, with another dtype where one is asked for."""
    config = huggingface.read_config(folders.inside(given.folder, huggingface.CONFIG))
    entries = _without_ties(given.tensors.entries, config)
    if place.dtype is not None:
        said = next(name for name, dtype in PLACES.items() if dtype == place.dtype)
        config = {k: v for k, v in config.items() if k != "torch_dtype"} | {"dtype": said}
    units = [_unit(key, piece, given.tensors, place, watch) for key, piece in entries.items()]
    native.write(out, units, writer.SHARD, {huggingface.CONFIG: config}, watch)
    (out / native.SPEC).unlink(missing_ok=True)


def _unit(key: str, piece: Piece, held: Stored, place: Place, watch: Watch) -> writer.Unit:
    """One tensor, read and cast when its file is written."""
    meta = piece.meta()
    cast = meta.is_floating_point()
    item = place.dtype.itemsize if cast and place.dtype is not None else meta.itemsize

    def make() -> dict[str, Tensor]:
        tensor = piece.read()
        watch(piece.size)
        return {key: place.put(tensor, held.source(key)) if cast else tensor}

    return writer.Unit({key: meta.numel() * item}, make)


def _without_ties(entries: dict[str, Piece], config: Config) -> dict[str, Piece]:
    """The tensors less those that a pickle holds twice and the family ties."""
    family = FAMILIES.get(str(config.get("model_type")))
    tied = {key for task in family.tasks.values() for key in task.tied} if family else set()
    kept = {
        piece.same_memory()
        for key, piece in entries.items()
        if isinstance(piece, pickles.Unpickled) and key not in tied
    }
    again = lambda key, piece: (
        key in tied and isinstance(piece, pickles.Unpickled) and piece.same_memory() in kept
    )
    return {key: piece for key, piece in entries.items() if not again(key, piece)}


def _copied(folder: Path, out: Path) -> list[str]:
    """Copy the tokenizer's files and what else stands beside the weights; their names."""
    names = [name for name in COPIED if (folder / name).is_file()]
    for name in names:
        shutil.copyfile(folders.inside(folder, name), out / name)
    return names
