"""The library's own folders: `anyformer.json`, the spec, and `model.safetensors`, the weights.

Complete or complain: what is missing, unknown or of another shape is named, with the file that
it should be in and the nearest known name.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from anyformer import spec as S
from anyformer.errors import AnyformerError, CheckpointError
from anyformer.model.model import Model, build
from anyformer.parts.init import Fresh

FORMAT = 1  # of anyformer.json
SPEC, WEIGHTS = "anyformer.json", "model.safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
WORKS = "What works: a folder that save_pretrained wrote, here or in Hugging Face's library."


def save(model: Model, folder: str | os.PathLike[str]) -> None:
    """Write spec and weights to a folder, which is made where it is not there.

    Each file is written whole under another name and then renamed, so a reader never meets half
    a file, and the spec comes last.
    """
    about = {"format": FORMAT, "spec": S.to_dict(model.spec)}
    weights = {k: t.detach().cpu().contiguous() for k, t in model.state_dict().items()}
    write(Path(folder), {WEIGHTS: weights}, SPEC, about)


def write(
    home: Path, files: dict[str, dict[str, Tensor]], about: str, text: dict[str, Any]
) -> None:
    """Write files of tensors, then a JSON file about them, each in one step."""
    if home.exists() and not home.is_dir():
        raise CheckpointError(f"{home} is a file: give a folder to save to")
    home.mkdir(parents=True, exist_ok=True)
    for name, tensors in files.items():
        _replace(home / name, lambda path, ts=tensors: save_file(ts, path, {"format": "pt"}))
    written = json.dumps(text, indent=2) + "\n"
    _replace(home / about, lambda path: path.write_text(written, "utf-8"))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place, then put it there in one step."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(beside)
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load(folder: Path) -> Model:
    """The model that one of our own folders holds."""
    folder = _native_folder(folder)
    model = _empty(_read_spec(folder / SPEC), folder)
    weights = read_weights(folder / WEIGHTS)
    check(model.state_dict(), weights, folder / WEIGHTS)
    restore_constants(model, weights)
    model.load_state_dict(weights, assign=True)
    return model.eval()


def _native_folder(name: str | os.PathLike[str]) -> Path:
    """A folder with both files; else an error that says what was found in its place."""
    folder = Path(name)
    if not folder.exists():
        raise CheckpointError(
            f"there is no folder {str(name)!r}, and names of the Hugging Face hub are not looked "
            f"up yet. {WORKS}"
        )
    if folder.is_file():
        if folder.suffix in PICKLES:
            raise CheckpointError(f"{folder} is a pickle, which can run code: refused. {WORKS}")
        raise CheckpointError(f"{folder} is a file: give the folder that it is in. {WORKS}")
    missing = [file for file in (SPEC, WEIGHTS) if not (folder / file).is_file()]
    if missing:
        raise CheckpointError(f"{folder} has no {' and no '.join(missing)}{_instead(folder)}")
    return folder


def _instead(folder: Path) -> str:
    """What a folder without our files holds, in words."""
    if (folder / SPEC).is_file():
        return ": a save was cut short, or the file was lost. Save the model again."
    pickles = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
    if pickles:
        return f" but the pickle {pickles[0]}, which can run code: refused. {WORKS}"
    return f". {WORKS}"


def _read_spec(file: Path) -> S.Model:
    try:
        about = json.loads(file.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} is not JSON: {error}") from error
    version = about.get("format") if isinstance(about, dict) else None
    if version != FORMAT:
        raise CheckpointError(
            f"{file} has format {version!r}; this version of anyformer reads {FORMAT}"
        )
    try:
        spec = S.from_dict(about.get("spec"))
    except AnyformerError as error:
        raise CheckpointError(f"{file}: {error}") from error
    if not isinstance(spec, S.Model):
        raise CheckpointError(f"{file}: spec is not a Model, but {spec!r}")
    return spec


def _empty(spec: S.Model, folder: Path) -> Model:
    """The model with shapes alone, so that nothing is drawn that the file replaces."""
    try:
        with torch.device("meta"):
            return build(spec)
    except AnyformerError as error:
        raise CheckpointError(f"{folder / SPEC}: {error}") from error


def read_weights(file: Path) -> dict[str, Tensor]:
    """All tensors of one safetensors file."""
    if file.stat().st_size == 0:
        raise CheckpointError(f"{file} is empty. Save the model again")
    try:
        # Copies are aligned in memory, tensors inside the file are not, and sums round otherwise.
        return {name: tensor.clone() for name, tensor in load_file(file).items()}
    except SafetensorError as error:
        raise CheckpointError(f"{file} is cut short or no safetensors file: {error}") from error


def check(ours: dict[str, Any], theirs: dict[str, Tensor], file: Path) -> None:
    """Raise unless both have the same keys with the same shapes."""
    missing = [key for key in ours if key not in theirs]
    unknown = [key for key in theirs if key not in ours]
    shapes = [key for key in ours if key in theirs and ours[key].shape != theirs[key].shape]
    found = [f"lacks {key!r}{_nearest(key, unknown or theirs)}" for key in missing]
    found += [f"holds {key!r}, unknown to the model{_nearest(key, ours)}" for key in unknown]
    found += [
        f"holds {key!r} of shape {tuple(theirs[key].shape)}, not {tuple(ours[key].shape)}"
        for key in shapes
    ]
    if found:
        more = f"; and {len(found) - 8} more" if len(found) > 8 else ""
        raise CheckpointError(f"{file} {'; '.join(found[:8])}{more}. It doesn't fit {SPEC}")


def _nearest(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), 1, 0.0)
    return f" (nearest: {near[0]!r})" if near else ""


def restore_constants(model: Model, weights: dict[str, Tensor]) -> None:
    """Fill what no file holds, such as ALiBi's slopes, in the dtype that all weights have."""
    dtypes = {t.dtype for t in weights.values()}
    for module in model.modules():
        if isinstance(module, Fresh) and any(b.is_meta for b in module.buffers(recurse=False)):
            module.to_empty(device="cpu", recurse=False)
            module.fresh(model.spec.init.std)
            for buffer in module.buffers(recurse=False) if len(dtypes) == 1 else ():
                buffer.data = buffer.data.to(next(iter(dtypes)))
