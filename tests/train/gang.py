"""Ranks on one machine: `python -m tests.train.gang FOLDER:RANKS …` forks them over gloo.

A folder that holds a run is resumed, after all of its checkpoints but the first are taken away.

The trainee is wrapped in DistributedDataParallel by hand here, so that what is tested is the loop:
sums, counts, saves and resumes over ranks.
"""

from __future__ import annotations

import datetime
import os
import shutil
import sys
import traceback
import types
from pathlib import Path

import torch
import torch._dynamo
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from anyformer.train import ranks, resume, train
from anyformer.train.settings import Evaluation, Saving
from tests.train.tiny import Numbers, TinyCausal, settings, spec

DATA = (Numbers(20, ragged=True), Numbers(7, seed=1, ragged=True))


def by_hand(trainee, settings) -> ranks.Spread:
    module = DistributedDataParallel(trainee)
    world = ranks.world()

    def sync(now: bool) -> None:
        module.require_backward_grad_sync = now

    return ranks.Spread(
        trainee, module, rank=ranks.rank(), world=world, factor=float(world), sync=sync
    )


def work(folder: Path) -> None:
    chosen = settings(
        steps=12,
        batch=8,
        micro=2,
        saving=Saving(every=3, keep=3),
        evaluation=Evaluation(every=3),
    )
    if (folder / "run.json").exists():
        resume(folder, DATA)
    else:
        train(spec(dropout=0.0), DATA, TinyCausal(), folder, chosen)


def rank(folder: Path, number: int, world: int) -> None:
    if world > 1:
        store = f"file://{folder}-{world}.store"
        limit = datetime.timedelta(seconds=120)
        dist.init_process_group("gloo", store, timeout=limit, rank=number, world_size=world)
        fake = types.ModuleType("anyformer.train.parallel")
        fake.spread = by_hand  # type: ignore[attr-defined]
        sys.modules[fake.__name__] = fake
    work(folder)


def gang(folder: Path, world: int) -> None:
    """Run so many ranks in a folder, each in a process of its own."""
    for old in sorted((folder / "checkpoints").glob("step-*"))[1:]:
        shutil.rmtree(old)
    children = []
    for number in range(world):
        child = os.fork()
        if child == 0:
            try:
                rank(folder, number, world)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * world, codes


if __name__ == "__main__":
    torch.set_num_threads(1)
    for job in sys.argv[1:]:
        folder, _, world = job.rpartition(":")
        gang(Path(folder), int(world))
