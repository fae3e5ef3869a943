"""Runs of many ranks from one process that loads torch once and forks a child for each rank.

`python -m tests.distributed.crew JOBS.json` does a list of jobs, one after another. A job is
{"case", "world", "out"} and maybe {"kind", "tensor", "replicas", "settings", "resume", "probe",
"differ"}.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

import anyformer.train.run as runs
from anyformer import build
from anyformer import spec as S
from anyformer.data.loader import Loader
from anyformer.objectives.base import Trainee
from anyformer.parts.feedforward import FeedForward
from anyformer.train import ranks
from anyformer.train.parallel import spread
from anyformer.train.settings import Spreading
from tests.distributed.cases import parts, settings

FEED = "stack.block.1.branch.dropout"
SPREAD = ("kind", "tensor", "replicas")


def work(job: dict[str, Any], given: dict[str, Any]) -> None:
    """What one rank does of a job."""
    spreading = Spreading(**{k: job[k] for k in SPREAD if k in job})
    chosen = settings(spreading=spreading)
    for path, value in job.get("settings", {}).items():
        value = S.from_dict(value) if isinstance(value, dict) else value
        chosen = S.override(chosen, path, value)
    with ranks.start(timeout=60):
        if job.get("differ") and ranks.rank() == 1:
            chosen = S.override(chosen, "lr", 0.004)
        if job.get("probe"):
            probe(given)
        elif job.get("resume"):
            bound = given["objective"].bind(given.get("tokenizer"), given["model"])
            runs.resume(job["out"], given["samples"], bound, spreading=spreading)
        else:
            runs.train(out=job["out"], settings=chosen, **given)


def probe(given: dict[str, Any]) -> None:
    """Ranks that share a model drop channels of their own, and have the same loss and gradients."""
    dropped: list[torch.Tensor] = []
    spec = S.override(S.override(given["model"], "stack.block.*.dropout", 0.3), FEED, 0.5)
    spec = S.override(spec, "stack.block.0.branch.dropout", 0.3)
    torch.manual_seed(0)
    trainee = Trainee(build(spec), given["objective"].bind(given["tokenizer"], spec))
    lies = spread(trainee, settings(spreading=Spreading(tensor=2)))
    for module in trainee.modules():
        if isinstance(module, FeedForward):
            module.down.register_forward_pre_hook(lambda _, x: dropped.append(x[0] == 0))
    loader = Loader(given["samples"][0], trainee.objective, 4)
    for step in range(2):
        torch.manual_seed(step)
        loss = sum(lies.module.train()(loader.step(step)[0]).losses.values())
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        ranks.agree({"loss": loss.item(), "next": torch.rand(()).item()})
    whole = [(n, p) for n, p in trainee.named_parameters() if not isinstance(p, DTensor)]
    ranks.agree({n: p.grad.double().sum().item() for n, p in whole if p.grad is not None})
    found: list[Any] = [None, None]
    dist.all_gather_object(found, dropped)
    assert len(dropped) == 4
    for one, two in zip(*found, strict=True):
        assert 0.4 < one.float().mean() < 0.6 and not torch.equal(one, two)


def _port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _child(job: dict[str, Any], given: dict[str, Any], rank: int, port: int) -> None:
    status = 1
    try:
        torch.set_num_threads(1)
        if job["world"] > 1:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(port)}
            os.environ |= {"WORLD_SIZE": str(job["world"]), "MASTER_ADDR": "127.0.0.1"}
        work(job, given)
        status = 0
    except BaseException:
        Path(f"{job['out']}.error.{rank}").write_text(traceback.format_exc())
    finally:
        os._exit(status)


def crew(job: dict[str, Any]) -> list[int]:
    """The exit statuses of a job's ranks."""
    given, port = parts(job["case"]), _port()
    children: list[int] = []
    for rank in range(job["world"]):
        child = os.fork()
        if child == 0:
            _child(job, given, rank, port)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children]


def main(path: str) -> None:
    """Do the jobs of a file; their exit statuses and seconds go beside it."""
    done = []
    for job in json.loads(Path(path).read_text()):
        begun = time.perf_counter()
        done.append({"codes": crew(job), "seconds": time.perf_counter() - begun})
    Path(path).with_suffix(".done.json").write_text(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1])
