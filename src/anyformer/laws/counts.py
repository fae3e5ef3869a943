"""Law 9: what the spec alone says of parameters and FLOPs is what the built model has and does."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

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
    with preferring("eager"), FlopCounterMode(display=False) as counter:
        c(at=slice(0, 5))
    found = count(spec, 5, batch=c.main.x.shape[0]).flops
    done = counter.get_total_flops()
    holds(found == done, f"{found} FLOPs counted, {done} done")
