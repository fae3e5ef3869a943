"""Law 9: what the spec alone says of parameters and FLOPs is what the built model has and does."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from anyformer import spec as S
from anyformer.laws.backends import preferring
from anyformer.laws.broken import holds
from anyformer.laws.cases import case
from anyformer.model.census import census
from anyformer.model.count import count


def law_parameters(spec: S.Model, seed: int) -> None:
    """9: keys and shapes of the census are those of the state_dict, and the counts add up."""
    c = case(spec, seed)
    wanted = {name: tuple(t.shape) for name, t in c.model.state_dict().items()}
    told = census(spec).keys()
    other = sorted(name for name in {*told, *wanted} if told.get(name) != wanted.get(name))
    holds(not other, f"names or shapes of parameters: {', '.join(other[:5])}")
    total = sum(t.numel() for t in c.model.parameters())
    counted = count(spec).parameters
    holds(counted == total, f"{counted} parameters counted, {total} built")


@torch.no_grad()
def law_flops(spec: S.Model, seed: int) -> None:
    """9: the FLOPs of the spec are those of one pass in which every score is written out."""
    c = case(spec, seed)
    c.other = c.other and c.other.cut(slice(5))  # both sequences have one length
    with preferring("eager"), Flops() as counter:
        c(at=slice(0, 5))
    found, done = count(spec, 5, batch=c.main.x.shape[0]).flops, counter.total
    holds(found == done, f"{found} FLOPs counted, {done} done")


class Flops(TorchDispatchMode):
    """Counts FLOPs by torch's own formulas, as FlopCounterMode does, without a tree of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count it where there is a formula for it."""
        out, formula = func(*args, **(kwargs or {})), flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out
