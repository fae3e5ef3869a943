"""One process at a time in a run's folder."""

from __future__ import annotations

import os
from pathlib import Path

from anyformer.errors import TrainError
from anyformer.train import ranks

try:
    import fcntl
except ImportError:  # a system without it has no lock
    fcntl = None  # type: ignore[assignment]

FILE = "lock"


class Lock:
    """Holds a folder while it is entered; the system lets go of it however the process ends."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.handle: int | None = None

    def __enter__(self) -> Lock:
        if ranks.rank() != 0:
            return self
        if self.folder.exists() and not self.folder.is_dir():
            raise TrainError(f"{self.folder} is a file: give a folder for the run")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.handle = os.open(self.folder / FILE, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise TrainError(f"{self.folder} can't be written: {error.strerror}") from error
        self._take(self.handle)
        return self

    def _take(self, handle: int) -> None:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.read(handle, 32).decode("ascii", "replace").strip()
                os.close(handle)
                raise TrainError(
                    f"{self.folder} is in use by process {holder or 'unknown'}: wait for it, stop "
                    "it, or give another folder"
                ) from error
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())

    def __exit__(self, *_: object) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None
