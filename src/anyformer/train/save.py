"""Checkpoints of a run: complete before they are named, checked before they are read.

A checkpoint is a folder `step-00000100` with the files of torch.distributed.checkpoint, the run's
state as JSON, and a manifest of sizes and digests that is written last. All of it is written into
a hidden folder that is renamed at the end. One process and many write and read the same files, in
any numbers. The index of torch's format is a pickle: only folders whose manifest fits are opened,
and of the pickle nothing is run (index.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as save_together

from anyformer.errors import TrainError
from anyformer.train import ranks
from anyformer.train.index import Reader

MANIFEST, STATE = "manifest.json", "state.json"
NAME = re.compile(r"step-(\d{8,})")
Say = Callable[[str], None]
Tensors = dict[str, Tensor]


_left: dict[Path, threading.Thread] = {}  # what runs of this process left to itself, by folder


class Saver:
    """Writes the checkpoints of one run, in the background where asked."""

    def __init__(self, home: Path, keep: int, background: bool):
        self.home, self.keep, self.background = home, keep, background
        before = _left.pop(home.resolve(), None)
        if before is not None:
            before.join()  # it would remove what is read here
        self.group: Any = ranks.group() if ranks.world() > 1 else None
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None
        if ranks.rank() == 0:
            home.mkdir(parents=True, exist_ok=True)
            clean(home)
        ranks.barrier()

    def save(
        self, step: int, tensors: Tensors, state: dict[str, Any], also: Collection[int] = ()
    ) -> None:
        """Save tensors and state after a step; `also` are steps that are kept beside the newest."""
        self.wait()
        kept = self._copied(tensors) if self.background and self.group is None else tensors
        state = json.loads(json.dumps(state))
        work = lambda write: self._finish(step, write, state, set(also))
        if not self.background:
            return self._named(step, work, lambda to: self._write(to, kept))
        write = self._started(step, kept)
        self.thread = threading.Thread(target=self._quiet, args=(step, work, write), daemon=True)
        self.thread.start()
        return None

    def wait(self) -> None:
        """Wait for the save that is under way; its failure is raised here."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def abandon(self) -> None:
        """Leave the save that is under way to itself; what is half written is removed later."""
        if self.thread is not None:
            _left[self.home.resolve()] = self.thread
        self.thread = None

    def _quiet(self, step: int, work: Callable[[Any], None], write: Any) -> None:
        try:
            self._named(step, work, write)
        except BaseException as error:
            self.error = error

    def _named(self, step: int, work: Callable[[Any], None], write: Any) -> None:
        """Do the work; a failure leaves no trace of it, and says what is still there."""
        try:
            work(write)
        except (Exception, CheckpointException) as error:  # torch's is no Exception
            if ranks.rank() == 0:
                shutil.rmtree(_temporary(self.home, step), ignore_errors=True)
            last = next(iter(steps(self.home)), None)
            raise TrainError(
                f"the checkpoint of step {step} could not be written to {self.home}: "
                f"{_cause(error)}. "
                + ("No earlier one is there" if last is None else f"That of step {last} is intact")
                + "; make room or give another folder, and resume"
            ) from error

    @staticmethod
    def _copied(tensors: Tensors) -> Tensors:
        """Copies on the CPU that training doesn't change."""
        return {k: t.detach().to("cpu", copy=True) for k, t in tensors.items()}

    def _started(self, step: int, tensors: Tensors) -> Callable[[Path], None]:
        """Begin to write in the background; what is returned waits for the end."""
        if self.group is None:
            return lambda to: self._write(to, tensors)
        writer = FileSystemWriter(self._begun(step), sync_files=True)
        future: Any = async_save(tensors, storage_writer=writer, process_group=self.group)
        return lambda to: future.result()

    def _begun(self, step: int) -> Path:
        """The empty folder that a checkpoint is written in."""
        to = _temporary(self.home, step)
        if ranks.rank() == 0:
            shutil.rmtree(to, ignore_errors=True)
            to.mkdir(parents=True)
        if self.group is not None:
            dist.barrier(group=self.group)
        return to

    def _write(self, to: Path, tensors: Tensors) -> None:
        writer = FileSystemWriter(to, sync_files=True)
        if self.group is not None:
            save_together(tensors, storage_writer=writer, process_group=self.group)
            return
        planner = DefaultSavePlanner()
        planner.set_up_planner(tensors, writer.storage_meta(), is_coordinator=True)
        writer.set_up_storage_writer(True)
        local = writer.prepare_local_plan(planner.create_local_plan())
        plans, index = planner.create_global_plan([local])
        plan = planner.finish_plan(writer.prepare_global_plan(plans)[0])
        writer.finish(index, [writer.write_data(plan, planner).wait()])

    def _finish(self, step: int, write: Any, state: dict[str, Any], also: set[int]) -> None:
        to = _temporary(self.home, step)
        if self.group is None or not self.background:
            self._begun(step)
        write(to)
        rank = ranks.rank()
        if rank == 0:
            _durable(to / STATE, json.dumps(state, indent=1))
        files = [f for f in to.iterdir() if _owner(f.name) == rank]
        digests = {f.name: [f.stat().st_size, digest(f)] for f in files}
        for found in self._gathered(digests):
            digests |= found
        if rank == 0:
            _durable(to / MANIFEST, json.dumps({"format": 1, "step": step, "files": digests}))
            _put(to, self.home / name(step))
            purge(self.home, self.keep, also | {step})
        if self.group is not None:
            dist.barrier(group=self.group)

    def _gathered(self, value: Any) -> Iterable[Any]:
        if self.group is None:
            return [value]
        found: list[Any] = [None] * ranks.world()
        dist.all_gather_object(found, value, group=self.group)
        return found


def name(step: int) -> str:
    """The folder of a checkpoint."""
    return f"step-{step:08d}"


def steps(home: Path) -> list[int]:
    """The steps of which there are checkpoints with a manifest, newest first."""
    if not home.is_dir():
        return []
    found = ((NAME.fullmatch(f.name), f) for f in home.iterdir())
    return sorted((int(m[1]) for m, f in found if m and (f / MANIFEST).is_file()), reverse=True)


def newest(home: Path, say: Say) -> int | None:
    """The newest step whose checkpoint is whole; `say` is told of those that are not."""
    for step in steps(home):
        wrong = fault(home / name(step))
        if wrong is None:
            return step
        say(f"the checkpoint {home / name(step)} is damaged ({wrong}): an earlier one is taken")
    return None


def fault(folder: Path) -> str | None:
    """What is wrong with a checkpoint by its manifest, or None."""
    try:
        files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
        for file, (size, wanted) in files.items():
            path = folder / Path(file).name
            if not path.is_file():
                return f"{file} is missing"
            if path.stat().st_size != size:
                return f"{file} has {path.stat().st_size} bytes, not {size}"
            if digest(path) != wanted:
                return f"{file} has changed"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST} can't be read: {error}"
    return None


def state_of(folder: Path) -> dict[str, Any]:
    """The run's state in a checkpoint."""
    return json.loads((folder / STATE).read_text("utf-8"))


def stored(folder: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Shapes and dtypes of a checkpoint's tensors by key; its manifest must have been checked."""
    index = Reader(folder).read_metadata().state_dict_metadata
    tensors = {k: v for k, v in index.items() if isinstance(v, TensorStorageMetadata)}
    return {k: (v.size, v.properties.dtype) for k, v in tensors.items()}


def fill(folder: Path, tensors: Tensors, together: bool = True) -> None:
    """Read tensors of a checkpoint in place; `together`: every rank calls this."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        alone = not together or ranks.world() == 1
        reader = Reader(folder)
        reader.read_metadata()  # an index that is refused is told of here, without torch's frames
        load(tensors, storage_reader=reader, no_dist=alone)


def purge(home: Path, keep: int, also: Collection[int]) -> None:
    """Remove all checkpoints but the newest and some others."""
    for step in steps(home)[keep:]:
        if step not in also:
            gone = home / f".{name(step)}.gone"
            (home / name(step)).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)


def clean(home: Path) -> None:
    """Remove what saves that were cut short left behind."""
    for path in home.glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _owner(file: str) -> int:
    """The rank that has written a file: __3_0.distcp is of rank 3, others of rank 0."""
    found = re.match(r"__(\d+)_", file)
    return int(found[1]) if found else 0


def _temporary(home: Path, step: int) -> Path:
    return home / f".{name(step)}.tmp"


def _durable(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _put(written: Path, final: Path) -> None:
    """Give a folder that is complete its name."""
    _sync(written)
    if final.exists():
        old = final.with_name(f".{final.name}.gone")
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
        os.replace(written, final)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(written, final)
    _sync(final.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _cause(error: BaseException) -> str:
    """What lies at the bottom of an error, in one line."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(f"{error}".split())[:300] or type(error).__name__
