"""Feed-forward: its inner width, and whether it is gated."""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.checkpoint.conversions.base import Part, strongest


def gating(part: Part) -> None:
    """act(up(x)) is 1 · act(gate(x)): the activated matrix moves, the other starts at one."""
    if part.old.gated == part.new.gated:
        return
    if part.old.gated:
        part.rename("gate", "up", "the gate, without what it multiplied")
        return
    part.rename("up", "gate", "the activated matrix of a plain feed-forward")
    if part.new.bias and part.has("gate.weight"):  # without a bias nothing gives a constant 1
        gate = part.pieces["gate.weight"].tensor
        why = "multiplies by one at the start: nothing changes"
        part.add("up.weight", torch.zeros_like(gate), why)
        part.add("up.bias", gate.new_ones(len(gate)), why)


def hidden(part: Part) -> None:
    """Narrower: the strongest channels. Wider: fresh channels that nothing reads yet."""
    if not part.has("down.weight"):
        return
    down, count = part.pieces["down.weight"].tensor, part.shapes["down.weight"][1]
    names = [n for n in ("up.weight", "up.bias", "gate.weight", "gate.bias") if part.has(n)]
    old = down.shape[1]
    if count < old:
        chosen = strongest(_strength(part, names, down), count)
        why = f"the {count} of {old} inner channels with the largest weights"
        part.change("down.weight", down[:, chosen], why)
        for name in names:
            part.change(name, part.pieces[name].tensor[chosen], why)
    elif count > old:
        zeros = down.new_zeros(len(down), count - old)
        why = f"{count - old} inner channels more, which nothing reads yet: nothing changes"
        part.change("down.weight", torch.cat([down, zeros], 1), why)
        for name in [n for n in names if n in part.shapes]:
            fresh = part.draw(name)[old:].to(down)
            part.change(name, torch.cat([part.pieces[name].tensor, fresh]), why)


def _strength(part: Part, names: list[str], down: Tensor) -> Tensor:
    """For each inner channel the product of the norms of what writes it and what reads it."""
    total = down.float().norm(dim=0)
    for module in ("up", "gate"):
        parts = [part.pieces[n].tensor.float() for n in names if n.startswith(module)]
        if parts:
            total = total * torch.cat([p.reshape(len(p), -1) for p in parts], 1).norm(dim=1)
    return total
