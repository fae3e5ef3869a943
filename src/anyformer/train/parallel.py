"""A trainee over many ranks: copies, shards, shards of copies, and each of them split by heads.

One mesh with the axes that are needed: `replicate` (the same weights), `shard` (a piece of every
weight), `tensor` (a share of the heads), the last one innermost. Ranks along the first two read
different rows.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from anyformer.errors import SpecError
from anyformer.model.stack import Block, Stack, Sublayer
from anyformer.objectives.base import Result, Trainee
from anyformer.parts.state import Call
from anyformer.train import ranks
from anyformer.train.ranks import Spread
from anyformer.train.settings import Adafactor, Settings, check
from anyformer.train.tensor import split

STATE = 20  # bytes of a parameter with its gradient, two moments and an average, in float32
ROOM = 0.4  # share of a device's memory that may hold them before they are sharded


@dataclass(frozen=True)
class Layout:
    """How many ranks lie along each axis of the mesh; what is called ddp has no shards."""

    replicate: int = 1
    shard: int = 1
    tensor: int = 1

    @property
    def data(self) -> int:
        """The ranks that read different rows."""
        return self.replicate * self.shard

    def axes(self) -> dict[str, int]:
        """The axes that more than one rank lies along."""
        sizes = {"replicate": self.replicate, "shard": self.shard, "tensor": self.tensor}
        return {name: size for name, size in sizes.items() if size > 1}


def layout(trainee: nn.Module, settings: Settings, world: int) -> Layout:
    """How so many ranks are laid out; an error where they can't be."""
    check(settings, world)
    found = settings.spreading
    kind, tensor = found.kind, found.tensor
    data = world // tensor
    if kind == "auto":
        whole = _fits(trainee) or isinstance(settings.optimiser, Adafactor)
        kind = "ddp" if tensor == 1 and whole else "fsdp"
    if kind == "ddp":
        return Layout(data, 1, tensor)
    return Layout(found.replicas, data // found.replicas, tensor)


def spread(trainee: Trainee, settings: Settings) -> Spread:
    """A trainee over all ranks, as the settings ask; every rank calls this."""
    world = ranks.world()
    plan = layout(trainee, settings, world)
    device = next(trainee.parameters()).device
    axes = plan.axes()
    mesh = ranks.mesh(device.type, axes)
    if plan.tensor > 1:
        kept = split(trainee.model, mesh["tensor"])
        if kept and ranks.rank() == 0:
            told = ", ".join(kept[:3]) + (", …" if len(kept) > 3 else "")
            ranks.say(f"{len(kept)} branches stay whole on every rank: {told}")
    place = ranks.rank() // plan.tensor
    made = Spread(trainee, trainee, place, plan.data, float(plan.data), plan.tensor)
    if plan.data == 1:
        return made
    if plan.shard == 1 and plan.tensor == 1:
        wrapped = _copies(trainee, mesh, device)
        return replace(made, module=wrapped, sync=lambda now: _meet(wrapped, now))
    names = tuple(name for name in axes if name != "tensor")
    _shard(trainee, mesh[names], settings)
    assert isinstance(trainee, FSDPModule)
    return replace(made, sync=trainee.set_requires_gradient_sync)


def _fits(trainee: nn.Module) -> bool:
    """Whether a device has room for a whole copy and all that training keeps beside it."""
    parameters = list(trainee.parameters())
    if parameters[0].device.type != "cuda":
        return True
    total = torch.cuda.get_device_properties(parameters[0].device).total_memory
    return STATE * sum(p.numel() for p in parameters) < ROOM * total


# ------------------------------------------------------------------ copies


def _copies(trainee: Trainee, mesh: DeviceMesh, device: torch.device) -> DistributedDataParallel:
    """DDP; parameters that a step doesn't use, as of blocks left out, are nothing special."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        return DistributedDataParallel(
            trainee,
            device_ids=[device.index] if device.type == "cuda" else None,
            process_group=mesh.get_group(),
            broadcast_buffers=False,
            find_unused_parameters=True,
            gradient_as_bucket_view=True,
        )


def _meet(wrapped: DistributedDataParallel, now: bool) -> None:
    wrapped.require_backward_grad_sync = now


# ------------------------------------------------------------------ shards


class _Box:
    """Hides a call from FSDP, which would hand a copy of it to the block."""

    def __init__(self, call: Call):
        self.call = call


def _shard(trainee: Trainee, mesh: DeviceMesh, settings: Settings) -> None:
    """FSDP2: each block by itself, then all that is left, embeddings and head among it."""
    for stack in trainee.modules():
        if isinstance(stack, Stack) and stack.spec.layer_dropout > 0:
            raise SpecError(
                f"layer_dropout={stack.spec.layer_dropout} with shards: ranks would leave out "
                "different blocks. Take spreading.kind='ddp', or layer_dropout=0"
            )
        if isinstance(stack, Stack) and stack.spec.loop and stack.spec.loop.drawn != "fixed":
            raise SpecError(
                f"loop.drawn={stack.spec.loop.drawn!r} with shards: ranks would run different "
                "rounds. Take spreading.kind='ddp', or loop.drawn='fixed'"
            )
    cuda = next(trainee.parameters()).device.type == "cuda"
    half = settings.precision == "bfloat16" and cuda
    policy = MixedPrecisionPolicy(
        torch.bfloat16 if half else None, torch.float32, cast_forward_inputs=False
    )
    for block in _apart(trainee):
        fully_shard(block, mesh=mesh, mp_policy=policy)
        _hide_calls(block)
    inner = trainee.forward
    trainee.forward = lambda batch: vars(inner(batch))  # type: ignore[method-assign, assignment]
    fully_shard(trainee, mesh=mesh, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))
    trainee.register_forward_hook(_result)


def _apart(trainee: nn.Module) -> list[Block]:
    """The blocks whose weights nothing else uses, and that are called as a whole."""
    lent = {m.lender[0] for m in trainee.modules() if isinstance(m, Sublayer) and m.lender}
    uses = Counter(id(p) for _, p in trainee.named_parameters(remove_duplicate=False))
    inside: set[nn.Module] = set()
    for stack in trainee.modules():
        if isinstance(stack, Stack) and stack.spec.reversible:
            inside |= set(stack.blocks)
    found: list[Block] = []
    for block in trainee.modules():
        if not isinstance(block, Block) or block in inside:
            continue
        if any(s in lent or (isinstance(s, Sublayer) and s.lender) for s in block):
            continue
        own = Counter(id(p) for _, p in block.named_parameters(remove_duplicate=False))
        if own and all(uses[key] == count for key, count in own.items()):
            found.append(block)
    return found


def _hide_calls(block: Block) -> None:
    inner = block.forward

    def forward(x: torch.Tensor, box: _Box, path: str) -> torch.Tensor:
        return inner(x, box.call, path)

    block.forward = forward  # type: ignore[method-assign, assignment]
    block.register_forward_pre_hook(
        lambda _, given: (given[0], _Box(given[1]), *given[2:]), prepend=True
    )


def _result(trainee: nn.Module, _: object, found: dict[str, Any]) -> Result:
    """A result out of plain dicts, which is where FSDP looks for tensors.

    After a pass without gradients, weights are gathered anew: they may change in between.
    """
    if not torch.is_grad_enabled() and isinstance(trainee, FSDPModule):
        trainee.reshard()
    return Result(**found)
