"""Ranks that end badly, from one process that loads torch once and forks a child for each.

`python -m tests.faults.ranks FOLDER` does every job and writes FOLDER/done.json: for each its exit
statuses, its seconds, and what its ranks said. A rank that stopped itself is killed in the end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch.distributed.checkpoint.filesystem import FileSystemWriter

import anyformer.train.run as runs
from anyformer.train import hearing, parallel, ranks, save
from anyformer.train.settings import Evaluation, Saving
from tests.train.tiny import Numbers, TinyCausal, settings, spec

assert parallel  # loaded once, for all children
TIMEOUTS = {"stop": 3.0, "gone": 3.0}  # seconds that ranks wait for each other; else enough
LIMIT = 40.0  # that a job may take
DATA = (Numbers(20, ragged=True), Numbers(7, seed=1, ragged=True))
WHERE = 5 * 8 + 6  # a row that the second rank reads in its sixth step, after the save of the third


class Trap(Numbers):
    """Samples of which one makes the process that reads it end badly."""

    mode = ""

    def __getitem__(self, index: int) -> Any:
        if index == WHERE and self.mode == "raise":
            raise ValueError("row 46 is poison")
        if index == WHERE and self.mode == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if index == WHERE and self.mode == "kill" and not ranks.restarted():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def full_disk() -> None:
    """The second rank finds no room for its part of the second checkpoint."""
    inner, count = FileSystemWriter.write_data, [0]

    def write(self: Any, *given: Any) -> Any:
        count[0] += 1
        if ranks.rank() == 1 and count[0] > 1:
            raise OSError(28, "No space left on device")
        return inner(self, *given)

    FileSystemWriter.write_data = write  # type: ignore[method-assign]


def late_files() -> None:
    """The first rank does not see the second one's files yet."""
    inner = Path.iterdir

    def listed(self: Path) -> Any:
        hidden = ranks.rank() == 0 and self.suffix == ".tmp"
        return (p for p in inner(self) if not (hidden and p.name.startswith("__1_")))

    Path.iterdir = listed  # type: ignore[method-assign]


def work(mode: str, out: Path) -> None:
    """What a rank does."""
    chosen = settings(
        steps=8, batch=8, saving=Saving(every=3, keep=3, background=mode == "async"),
        evaluation=Evaluation(every=4),
    )  # fmt: skip
    learn = Trap(20, ragged=True)
    learn.mode = mode
    hearing.PATIENCE = 1.0
    with ranks.start(timeout=TIMEOUTS.get(mode, 30.0)):
        if mode == "full":
            full_disk()
        if mode == "gone" and ranks.rank() == 1:
            ranks.group = lambda: os.kill(os.getpid(), signal.SIGKILL)
        if mode == "late":
            late_files()
        lr = 0.004 if mode == "differ" and ranks.rank() == 1 else chosen.lr
        chosen = settings(**{**vars(chosen), "lr": lr})
        if mode == "resume":
            runs.resume(out, DATA)
        else:
            runs.train(spec(dropout=0.0), (learn, DATA[1]), TinyCausal(), out, chosen)


def child(mode: str, out: Path, rank: int, world: int, port: int) -> None:
    """One rank; what it says goes to a file of its own."""
    status = 1
    sys.stderr = (out.parent / f"{out.name}.said.{rank}").open("w", buffering=1)
    try:
        torch.set_num_threads(1)
        if world > 1:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(port)}
            os.environ |= {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
        work(mode, out)
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)


def job(mode: str, out: Path, world: int = 2) -> dict[str, Any]:
    """Run ranks to their end, or kill those that never come to one."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    begun, codes, left = time.monotonic(), {}, {}
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            child(mode, out, rank, world, port)
        left[pid] = rank
    while left and time.monotonic() - begun < LIMIT:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            codes[left.pop(pid)] = os.waitstatus_to_exitcode(status)
        elif mode == "stop" and len(left) == 1 and codes:
            break
        time.sleep(0.02)
    seconds = time.monotonic() - begun
    for pid, rank in left.items():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        codes[rank] = -9
    said = [(out.parent / f"{out.name}.said.{r}").read_text() for r in range(world)]
    return {"codes": [codes[r] for r in range(world)], "seconds": seconds, "said": said}


def resumed(home: Path, world: int) -> dict[str, Any]:
    """The run of two ranks, gone on with by another number of them from its first checkpoints."""
    out = home / f"on {world}"
    shutil.copytree(home / "whole", out)
    for step in save.steps(out / "checkpoints")[:-2]:
        shutil.rmtree(out / "checkpoints" / save.name(step))
    return job("resume", out, world)


def main(folder: str) -> None:
    """Do all jobs."""
    home = Path(folder)
    done = {"whole": job("whole", home / "whole")}
    for mode in ("raise", "stop", "kill", "gone", "differ", "full", "late", "async"):
        done[mode] = job(mode, home / mode)
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "1"
    done["restart"] = job("kill", home / "kill")
    del os.environ["TORCHELASTIC_RESTART_COUNT"]
    done["on 1"], done["on 4"] = resumed(home, 1), resumed(home, 4)
    (home / "done.json").write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
