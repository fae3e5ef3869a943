"""Memory that runs out: told apart from other errors, and answered with numbers and knobs."""

from __future__ import annotations

import torch

from anyformer.model.count import checked_length, memory
from anyformer.objectives.base import Trainee
from anyformer.train.settings import Settings

SIGNS = ("can't allocate memory", "out of memory", "not enough memory")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a CPU or a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def advice(trainee: Trainee, settings: Settings, device: torch.device) -> str:
    """What a run needs, about, and what makes it less."""
    weights = sum(p.nbytes for p in trainee.parameters())
    rows, spec = settings.micro or settings.batch, trainee.model.spec
    kept = memory(spec, checked_length(spec), rows).activations
    gib = lambda number: f"{number / 2**30:,.2f} GiB"
    less = "" if settings.recompute else ", recompute=True"
    return (
        f"out of memory on {device}: weights, gradients and moments take about {gib(4 * weights)}, "
        f"{rows} rows of full length about {gib(kept)} more. Take a lower micro= (rows at once; "
        f"the batch and its result stay), precision='bfloat16'{less} or a shorter length. What "
        "was saved is intact: resume goes on from there"
    )
