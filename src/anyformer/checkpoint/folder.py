"""Folders: which files they hold, which of them are safe to read, and where each tensor lies."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from anyformer.checkpoint.reader import Entry, Stored, entries_of
from anyformer.errors import CheckpointError, UnsafeError
from anyformer.spec import strict

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
HINT = ": save the model again, or give the folder that its weights are in"


def inside(folder: Path, name: str, named_by: str = "") -> Path:
    """A file of a folder, followed to where it really lies, which must be in the folder too.

    Snapshots in the cache of Hugging Face's hub are links to ../../blobs: these are followed.
    """
    by = f"{folder / named_by} names {name!r}" if named_by else f"{folder / name} is a link"
    if Path(name).name != name or not name.isprintable():
        raise UnsafeError(
            f"{by}, outside the folder: refused. Give a folder that holds all of its files"
        )
    home, file = folder.resolve(), (folder / name).resolve()
    homes = [home, home.parents[1] / "blobs"] if home.parent.name == "snapshots" else [home]
    if not any(allowed in file.parents for allowed in homes):
        raise UnsafeError(
            f"{folder / name} is a link to {file}, outside the folder: refused. Put the file "
            "itself there, or give the folder that it is in"
        )
    return folder / name


def read_json(file: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    found = strict.read(file, CheckpointError)
    if not isinstance(found, dict):
        raise CheckpointError(
            f"{file} holds {type(found).__name__}, not an object of fields. Save it again"
        )
    return found


def stored(folder: Path) -> Stored:
    """All tensors of a folder, in one file or in shards; none is read yet."""
    if (folder / WEIGHTS).is_file():
        return Stored(entries_of(inside(folder, WEIGHTS)))
    if not (folder / INDEX).is_file():
        pickled = instead(folder)
        error = UnsafeError if pickled else CheckpointError
        raise error(f"{folder} has neither {WEIGHTS} nor {INDEX}{pickled or HINT}")
    placed = read_json(inside(folder, INDEX)).get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(v, str) for v in placed.values()):
        raise CheckpointError(f"{folder / INDEX} has no weight_map from keys to files")
    found: dict[str, Entry] = {}
    for name in sorted(set(placed.values())):
        shard = inside(folder, name, INDEX)
        if not shard.is_file():
            raise CheckpointError(
                f"{folder} lacks the shard {name} that {INDEX} names. Download the folder again"
            )
        held = entries_of(shard)
        twice = sorted(held.keys() & found.keys())
        if twice:
            raise CheckpointError(
                f"{shard} holds {twice[0]!r}, which {found[twice[0]].file} has too. Download or "
                "save the folder again"
            )
        found |= held
    lost = sorted(k for k, name in placed.items() if k not in found or found[k].file.name != name)
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise CheckpointError(
            f"{folder / INDEX} says that {placed[lost[0]]} holds {lost[0]!r}{more}; it doesn't. "
            "Download or save the folder again"
        )
    return Stored(found)


def instead(folder: Path) -> str:
    """What a folder without readable weights holds, in words."""
    pickles = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
    if not pickles:
        return ""
    return f" but the pickle {pickles[0]}, which can run code: refused. {command(folder)}"


def command(source: Path | str, out: str | None = None) -> str:
    """The command that turns pickles into safetensors."""
    target = out or f"{str(source).rstrip('/')}-safetensors"
    quoted = " ".join(shlex.quote(str(word)) for word in (source, target))
    return f"Convert it, safely: anyformer convert {quoted}"
