"""Old weights, pytorch_model.bin: read for conversion only, and nothing but tensors of them.

Torch's restricted unpickler builds tensors and plain containers; whatever else a pickle asks for,
code above all, is refused.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anyformer.checkpoint.folder import inside, read_json
from anyformer.checkpoint.reader import Stored
from anyformer.errors import CheckpointError, UnsafeError

WEIGHTS, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


@dataclass(frozen=True)
class Unpickled:
    """A tensor of a pickle, mapped into memory; a `reader.Piece`."""

    file: Path
    key: str
    tensor: Tensor

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.tensor.nbytes

    def meta(self) -> Tensor:
        """Its shape and dtype alone."""
        return torch.empty_like(self.tensor, device="meta")

    def read(self) -> Tensor:
        """Its numbers, in memory of their own."""
        return self.tensor.detach().clone(memory_format=torch.contiguous_format)

    def same_memory(self) -> tuple[object, ...]:
        """What is equal for tensors that are one in memory."""
        t = self.tensor
        return (t.untyped_storage().data_ptr(), t.storage_offset(), t.shape, t.stride())


def there(folder: Path) -> bool:
    """Whether a folder has old weights."""
    return any((folder / name).is_file() for name in (WEIGHTS, INDEX))


def stored(folder: Path) -> Stored:
    """All tensors of the old weights, single or in shards."""
    if (folder / WEIGHTS).is_file():
        return Stored(_read(inside(folder, WEIGHTS)))
    placed = read_json(inside(folder, INDEX)).get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(v, str) for v in placed.values()):
        raise CheckpointError(f"{folder / INDEX} has no weight_map from keys to files")
    found: dict[str, Unpickled] = {}
    for name in sorted(set(placed.values())):
        shard = inside(folder, name, INDEX)
        if not shard.is_file():
            raise CheckpointError(f"{folder} lacks the shard {name} that {INDEX} names")
        found |= _read(shard)
    lost = sorted(placed.keys() - found.keys())
    if lost:
        raise CheckpointError(f"{folder / INDEX} says that {placed[lost[0]]} holds {lost[0]!r}")
    return Stored(found)


def _read(file: Path) -> dict[str, Unpickled]:
    """The tensors of one pickle."""
    try:
        found = _load(file)
    except pickle.UnpicklingError as error:
        raise UnsafeError(
            f"{file} holds more than tensors, and that could run code: refused. Ask its author for "
            "safetensors"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, AttributeError, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{file} is damaged or no weights of torch: {said}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{file} holds {type(found).__name__}, not tensors by name")
    other = [key for key, value in found.items() if not isinstance(value, Tensor)]
    if other:
        raise CheckpointError(f"{file}: {other[0]!r} is no tensor")
    return {str(key): Unpickled(file, str(key), value) for key, value in found.items()}


def _load(file: Path) -> Any:
    """What the restricted unpickler makes of a file; old files can't be mapped into memory."""
    with file.open("rb") as opened:
        mapped = opened.read(2) == b"PK"
    return torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
