"""Writing folders: tensors in one safetensors file or in shards, every file in one step.

All files are written whole under other names first and renamed at the end, JSON last; what an
earlier save left behind under other names goes then.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from anyformer.checkpoint.folder import INDEX, WEIGHTS
from anyformer.errors import CheckpointError

SHARD = "5GB"  # the most that a file holds
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
WEIGHT_FILE = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
Save = Callable[[dict[str, Tensor], Path, dict[str, str]], object]


@dataclass(frozen=True)
class Unit:
    """Tensors that are made together, when their file is written; their bytes by name."""

    sizes: dict[str, int]
    make: Callable[[], dict[str, Tensor]]

    @property
    def size(self) -> int:
        """The bytes of all."""
        return sum(self.sizes.values())


Shards = dict[str, list[Unit]]  # by the name of the file


def unit(tensors: dict[str, Tensor]) -> Unit:
    """Tensors as they are, brought to the CPU one file at a time."""
    return Unit({k: t.nbytes for k, t in tensors.items()}, lambda: tensors)


def parsed(size: int | str) -> int:
    """A number of bytes, or one with a unit such as 5GB or 512MiB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]i?B)?", str(size).strip(), re.IGNORECASE)
    count = float(found[1]) * UNITS[(found[2] or "").upper()] if found else 0
    if not found or not 1 <= count < math.inf:
        raise CheckpointError(f"max_shard_size={size!r} is no size such as 5GB, 500MB or 1GiB")
    return int(count)


def shards(units: list[Unit], limit: int | str) -> Shards:
    """Units by file, in order, each file as full as the limit lets it be."""
    most, files, room = parsed(limit), [[]], parsed(limit)
    for item in units:
        if files[-1] and item.size > room:
            files.append([])
            room = most
        files[-1].append(item)
        room -= item.size
    if len(files) == 1:
        return {WEIGHTS: files[0]}
    named = lambda i: f"model-{i + 1:05}-of-{len(files):05}.safetensors"
    return {named(i): held for i, held in enumerate(files)}


def write(
    home: Path,
    files: Shards,
    about: dict[str, dict[str, Any]],
    save: Save,
    watch: Callable[[int], object],
) -> None:
    """Write a folder whole, or leave what was there."""
    if home.exists() and not home.is_dir():
        raise CheckpointError(f"{home} is a file: give a folder to save to")
    if len(files) > 1:
        about = {INDEX: _index(files)} | about
    staged: dict[Path, Path] = {}
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name, units in files.items():
            beside = staged.setdefault(home / name, _beside(home / name))
            save(_made(units), beside, {"format": "pt"})
            watch(sum(item.size for item in units))
        for name, text in about.items():
            beside = staged.setdefault(home / name, _beside(home / name))
            beside.write_text(json.dumps(text, indent=2) + "\n", "utf-8")
        _put(home, staged)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{home} can't be written: {error}. Make room, or give a folder that can be; what was "
            "there is as it was"
        ) from error
    finally:
        for beside in staged.values():
            beside.unlink(missing_ok=True)


def _put(home: Path, staged: dict[Path, Path]) -> None:
    """Rename the files that are written, and remove the weights of an earlier save."""
    for beside in staged.values():
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
    *weights, last = staged.items()
    for path, beside in weights:
        shutil.copymode(last[1], beside)  # safetensors lets only the owner read
        beside.replace(path)
    for path in home.iterdir():
        if (WEIGHT_FILE.fullmatch(path.name) or path.name == INDEX) and path not in staged:
            path.unlink()
    last[1].replace(last[0])


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _made(units: list[Unit]) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU and without holes."""
    return {
        key: tensor.detach().cpu().contiguous()
        for item in units
        for key, tensor in item.make().items()
    }


def _index(files: Shards) -> dict[str, Any]:
    """Which file holds which tensor."""
    placed = {key: name for name, units in files.items() for item in units for key in item.sizes}
    total = sum(item.size for units in files.values() for item in units)
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(placed.items()))}
