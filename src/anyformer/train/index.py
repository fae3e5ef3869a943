"""The index of torch's checkpoint format, a pickle, read so that nothing in it is run.

What an index needs are a dozen classes of torch's own: sizes, dtypes and where each chunk lies.
Whatever else a file asks for is refused, and so are entries that torch would unpickle itself and
files outside the checkpoint's folder.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import IO, Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from anyformer.errors import TrainError, UnsafeError

_INDEX = "torch.distributed.checkpoint.metadata"
NAMES = {
    *((_INDEX, name) for name in ("Metadata", "MetadataIndex", "StorageMeta", "TensorProperties")),
    *((_INDEX, name) for name in ("TensorStorageMetadata", "ChunkStorageMetadata")),
    (_INDEX, "_MEM_FORMAT_ENCODING"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("torch", "device"),
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("pathlib", "WindowsPath"),
    ("pathlib._local", "PosixPath"),
    ("pathlib._local", "WindowsPath"),
}  # fmt: skip


class _Careful(pickle.Unpickler):
    """Finds the classes of an index, and dtypes; nothing else."""

    def find_class(self, module: str, name: str, /) -> Any:
        """A class or a dtype that an index may name."""
        known = (module, name) in NAMES
        if known or (module == "torch" and isinstance(vars(torch).get(name), torch.dtype)):
            return super().find_class(module, name)
        raise UnsafeError(f"it names {module}.{name}, which could run code")


class Reader(FileSystemReader):
    """Reads a checkpoint of torch's format whose index is nothing but an index."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The index."""
        path = Path(self._get_metadata_path(kwargs.get("rank")))
        try:
            with path.open("rb") as file:
                found = _index(file)
        except UnsafeError as error:
            raise UnsafeError(f"{path}: {error}: refused. Begin anew, or resume a copy") from error
        except Exception as error:
            raise TrainError(f"{path} is damaged: {error}; resume an earlier one") from error
        found.storage_meta = found.storage_meta or StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


def _index(file: IO[bytes]) -> Metadata:
    """An index of tensors in files beside it."""
    found = _Careful(file).load()
    if not isinstance(found, Metadata):
        raise TypeError(f"it holds a {type(found).__name__}")
    kinds = {type(entry) for entry in found.state_dict_metadata.values()}
    if kinds - {TensorStorageMetadata}:
        raise UnsafeError("it holds more than tensors, which could run code")
    for place in found.storage_data.values():
        if Path(place.relative_path).name != place.relative_path:
            raise UnsafeError(f"it names {place.relative_path!r}, outside the checkpoint")
    return found
