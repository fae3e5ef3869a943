"""Which rank of how many this is, and sums over all of them; one process is one rank."""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, _set_pg_timeout
from torch.distributed.rendezvous import rendezvous

from anyformer.data.order import mix
from anyformer.errors import TrainError
from anyformer.objectives.base import Trainee
from anyformer.train import hearing

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets
TIMEOUT = 600.0  # seconds that ranks wait for each other
_limit = timedelta(seconds=TIMEOUT)  # what they were told at the start


@contextmanager
def start(timeout: float = TIMEOUT) -> Iterator[int]:
    """Join the processes that torchrun started, for a while; gives this one's rank.

    Without torchrun there is one process and nothing to do. Gloo carries what lies on the CPU, NCCL
    what lies on GPUs. Leaving after an error doesn't wait for the others: they hear of it.
    """
    size = _world_asked()
    if size == 1 or initialised():
        yield rank()
        return
    store = _join(size, timeout)
    try:
        yield rank()
    except Exception as error:
        hearing.leave_word(store, rank(), error)
        told = hearing.explained(store, rank(), size, error)
        say(f"rank {rank()}: {type(told).__name__}: {told}")
        if told is error:
            raise
        raise told from error
    else:
        barrier()
        dist.destroy_process_group()


def restarted() -> bool:
    """Whether torchrun started these processes again after some of them had died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def say(text: str) -> None:
    """A line for whoever watches."""
    print(text, file=sys.stderr, flush=True)


def _world_asked() -> int:
    """The number of processes that the environment speaks of; 1 where it doesn't."""
    given = {name: os.environ.get(name) for name in NEEDED}
    if given["RANK"] is None and given["WORLD_SIZE"] is None:
        return 1
    missing = [name for name, value in given.items() if value is None]
    if missing and given["WORLD_SIZE"] != "1":
        raise TrainError(
            f"{', '.join(missing)} missing from the environment, where "
            f"{', '.join(n for n in NEEDED if n not in missing)} are: start with torchrun "
            "--nproc-per-node N -m anyformer …, or unset all of them"
        )
    numbers = {n: str(given[n]) for n in ("RANK", "WORLD_SIZE", "MASTER_PORT") if given[n]}
    wrong = {n: v for n, v in numbers.items() if not v.isdecimal()}
    if wrong:
        raise TrainError(", ".join(f"{n}={v!r} is no number" for n, v in wrong.items()))
    at, size = int(given["RANK"] or 0), int(given["WORLD_SIZE"] or 1)
    if at >= size:
        raise TrainError(f"RANK={at} is not below WORLD_SIZE={size}")
    return size


def _join(size: int, timeout: float) -> PrefixStore:
    """Meet the other processes; what they can leave word in."""
    global _limit
    backend = "gloo"
    if torch.cuda.is_available():
        own = int(os.environ.get("LOCAL_RANK", "0"))
        if own < torch.cuda.device_count():
            torch.cuda.set_device(own)
        backend = "cpu:gloo,cuda:nccl"
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    wait = _limit = timedelta(seconds=timeout)
    try:
        store, at, _ = next(rendezvous("env://", timeout=wait))
        store = PrefixStore(f"attempt {attempt}", store)  # torchrun keeps one for all attempts
        begin = lambda: dist.init_process_group(
            backend, store=store, rank=at, world_size=size, timeout=wait
        )
        _in_time("init_process_group", begin)
        return store
    except (RuntimeError, ValueError) as error:
        told = str(error).splitlines()[0]
        raise TrainError(
            f"the {size} processes could not meet at {address} (MASTER_ADDR:MASTER_PORT): {told}. "
            "Is the address that of the first machine, the port free, and did all start?"
        ) from error


def agree(record: Any, what: str = "the run") -> None:
    """Raise on every rank, naming the first key, where plain data is not the same on all."""
    if world() == 1:
        return
    found: list[Any] = [None] * world()
    dist.all_gather_object(found, json.loads(json.dumps(record)))
    for other, theirs in enumerate(found):
        key = _difference(found[0], theirs)
        if key is not None:
            path, a, b = key
            raise TrainError(
                f"ranks don't agree on {what}: {path or 'it'} is {a!r} on rank 0 and {b!r} on rank "
                f"{other}; start all with the same command, files and versions"
            )


def _difference(one: Any, two: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Where two pieces of plain data differ first: the path and both values."""
    if isinstance(one, dict) and isinstance(two, dict):
        pairs = [(str(k), one.get(k), two.get(k)) for k in {**one, **two}]
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        pairs = [(str(i), a, b) for i, (a, b) in enumerate(zip(one, two, strict=True))]
    else:
        return None if one == two else (path, one, two)
    found = (_difference(a, b, f"{path}.{k}".lstrip(".")) for k, a, b in pairs)
    return next((f for f in found if f is not None), None)


def initialised() -> bool:
    """Whether processes know of each other."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """The number of this process, from 0 on."""
    return dist.get_rank() if initialised() else 0


def world() -> int:
    """The number of processes."""
    return dist.get_world_size() if initialised() else 1


def barrier() -> None:
    """Wait for every process."""
    if world() > 1:
        dist.barrier()


def group() -> Any:
    """Another group of all processes, over gloo, which wait for each other as long as in the first.

    Torch's own limit is half an hour.
    """
    return _in_time("new_group", lambda: dist.new_group(backend="gloo", timeout=_limit))


def mesh(kind: str, axes: dict[str, int]) -> DeviceMesh:
    """All processes laid out by named axes, whose groups wait for each other as long as all do."""
    made = init_device_mesh(kind, tuple(axes.values()), mesh_dim_names=tuple(axes))
    with warnings.catch_warnings():  # of a kind of group that has no limit
        warnings.filterwarnings("ignore", "Set timeout is now only supported")
        for own in made.get_all_groups():
            _set_pg_timeout(_limit, own)
    return made


def _in_time(name: str, connect: Callable[[], Any]) -> Any:
    """What connects processes, or an error after the limit.

    Where a process goes away while others connect to it, gloo may wait for ever, whatever it was
    told: so it waits in a thread, which is left behind then.
    """
    made: list[Any] = []
    wrong: list[Exception] = []

    def work() -> None:
        try:
            made.append(connect())
        except Exception as error:
            wrong.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(_limit.total_seconds() + hearing.PATIENCE)
    for error in wrong:
        raise error
    if not made:
        raise RuntimeError(f"{name} timed out after {_limit.total_seconds():g} s")
    return made[0]


def from_first(value: Any) -> Any:
    """What the first process has, on every one of them."""
    if world() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def device_of(name: str) -> torch.device:
    """The device that a setting names; "auto": a GPU of this process's own, else the CPU."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        own, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if own >= there:
            raise TrainError(
                f"process {own + 1} of this machine has no GPU of its own: start {there}, as many "
                "as it has, or give device='cpu'"
            )
        return torch.device("cuda", own)
    return torch.device("cpu")


@dataclass
class Spread:
    """A trainee as it lies over the ranks: what is called, which rows it reads, how sums meet.

    `parallel.spread` makes one; gradients that it averages over ranks are multiplied by `factor`
    beforehand, so that they are sums over all rows.
    """

    trainee: Trainee  # whose names and weights are saved
    module: nn.Module  # what is called with a batch: the trainee or a wrapper around it
    rank: int = 0  # of those that read different rows
    world: int = 1
    factor: float = 1.0
    copies: int = 1  # ranks that share a model, and so read the same rows
    sync: Callable[[bool], None] = lambda now: None  # whether the next backward meets the others

    def sum(self, values: Tensor) -> Tensor:
        """Values summed over the ranks that read different rows, in place; all get the same bits.

        Ranks that share a model have the same values, so that theirs are counted once.
        """
        if self.world * self.copies > 1:
            dist.all_reduce(values)
        return values.div_(self.copies) if self.copies > 1 else values


def alone(trainee: Trainee) -> Spread:
    """A trainee that one process has."""
    return Spread(trainee, trainee)


def seed(device: torch.device, *numbers: int) -> None:
    """Seed torch's generators for a device with numbers mixed; cheaper than torch.manual_seed."""
    chosen = mix(*numbers)
    torch.default_generator.manual_seed(chosen)
    if device.type == "cuda":
        torch.cuda.manual_seed(chosen)
    elif device.type != "cpu":
        torch.manual_seed(chosen)
