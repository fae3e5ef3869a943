"""What becomes of a loop's own weights with another number of rounds."""

from __future__ import annotations

import torch

from anyformer.checkpoint.conversions.base import Part, rows


def steps(part: Part) -> None:
    """Vectors by turn: further turns have none yet, or start without any."""
    wanted = part.shapes.get("loop.step")
    if wanted is None:
        return
    if not part.has("loop.step"):
        part.add("loop.step", torch.zeros(wanted), "steps of zeros: nothing changes")
        return
    rows(part, "loop.step", wanted[0], torch.zeros(wanted), "zeros")


def routes(part: Part) -> None:
    """Routers by round: further rounds have that of the last."""
    for name in ("loop.halt.weight", "loop.halt.bias"):
        wanted = part.shapes.get(name)
        if wanted is None or not part.has(name) or wanted == part.pieces[name].tensor.shape:
            continue
        last = part.pieces[name].tensor[-1:]
        rows(part, name, wanted[0], last.expand(wanted), "like the last")
