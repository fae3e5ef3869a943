"""Clipping and AdamW as two kernels over all weights of a GPU.

Torch's has a pass for the norm, one that multiplies gradients, and one that updates. Here the
second reads gradients as they came, of 16 or 32 bits, and writes copies of weights (low.py) too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anyformer.ops.tiles import INSTALLED, interpreted
from anyformer.train.low import Copy, Low
from anyformer.train.optim import Optimisers

EVEN = 16  # what addresses and sizes are multiples of, so that many numbers are read at once
STATE = ("exp_avg", "exp_avg_sq")
KERNELS = True  # False: torch's own, which is slower and what they are compared with


class Entry(NamedTuple):
    """A weight, its copy if it has one, and the group that it learns in."""

    weight: nn.Parameter
    copy: Copy | None
    group: dict[str, Any]


def takes(optimisers: Optimisers) -> bool:
    """Whether the kernels are for these: AdamW alone, on whole weights of float32, on a GPU."""
    if len(optimisers.all) != 1 or not isinstance(optimisers.all[0], torch.optim.AdamW):
        return False
    given = optimisers.parameters
    plain = all(type(p) is nn.Parameter and _ready(p) for p in given)
    return KERNELS and INSTALLED and plain and (given[0].is_cuda or interpreted())


class Update:
    """One update after another of the same weights."""

    def __init__(self, optimisers: Optimisers, low: Low, most: float | None):
        self.optimiser: Any = optimisers.all[0]
        self.low, self.most = low, float("inf") if most is None else most
        self.entries = [
            Entry(weight, low.copies.get(id(weight)), group)
            for group in self.optimiser.param_groups
            for weight in group["params"]
        ]
        self.pieces: dict[tuple[int, ...], Any] = {}  # by entries that have a gradient
        rate = lambda lr: lr if isinstance(lr, Tensor) else self.entries[0].weight.new_empty(())
        self.rates = [rate(group["lr"]) for group in self.optimiser.param_groups]
        rows = torch.empty(len(self.entries), 7, dtype=torch.int64)
        cuda = bool(self.entries) and self.entries[0].weight.is_cuda
        self.host = rows.pin_memory() if cuda else rows  # what a captured copy reads

    @torch.no_grad()
    def run(self) -> Tensor:
        """Clip and update; the norm () of all gradients before."""
        from anyformer.ops.kernels import launch_update  # Triton is no dependency

        found = {i: self._gradient(entry) for i, entry in enumerate(self.entries)}
        there = {i: grad for i, grad in found.items() if grad is not None}
        used, device = [self.entries[i] for i in there], self.host.device
        if not used:
            return torch.zeros((), device=device)
        device = used[0].weight.device
        states = [self._state(entry.weight) for entry in used]
        torch._foreach_add_([state["step"] for state in states], 1)  # pyright: ignore
        key = tuple(there)
        if key not in self.pieces:
            sizes = [entry.weight.numel() for entry in used]
            decays = [float(entry.group["weight_decay"]) for entry in used]
            self.pieces[key] = launch_update.pieces(sizes, decays, device)
        rates = self._rates()
        given = zip(used, there.values(), states, strict=True)
        rows = [[*_addresses(*x), rates[id(x[0].group)].data_ptr()] for x in given]
        even = all(entry.weight.numel() % EVEN == 0 for entry in used)
        group = used[0].group
        how = launch_update.How(tuple(group["betas"]), group["eps"], self.most)
        low = next((e.copy.leaf.dtype for e in used if e.copy is not None), torch.bfloat16)
        return launch_update.run(self._sent(rows, device), self.pieces[key], how, even, low)

    def _rates(self) -> dict[int, Tensor]:
        """The rate of each group, where kernels read it."""
        groups = self.optimiser.param_groups
        for group, rate in zip(groups, self.rates, strict=True):
            if group["lr"] is not rate:
                rate.fill_(group["lr"])
        return {id(group): rate for group, rate in zip(groups, self.rates, strict=True)}

    def _gradient(self, entry: Entry) -> Tensor | None:
        """Of the copy, or of the weight where passes were collected."""
        own = None if entry.copy is None else entry.copy.grad
        grad = entry.weight.grad if own is None else own
        if grad is None or (grad.is_contiguous() and grad.data_ptr() % EVEN == 0):
            return grad
        return grad.contiguous().clone()

    def _state(self, weight: nn.Parameter) -> dict[str, Tensor]:
        """What AdamW keeps of a weight, as torch's does."""
        state = self.optimiser.state[weight]
        if not state:
            state["step"] = torch.zeros((), device=weight.device)
            for name in STATE:
                state[name] = torch.zeros_like(weight)
        return state

    def _sent(self, rows: Sequence[list[int]], device: torch.device) -> Tensor:
        """Addresses where kernels read them."""
        table = torch.tensor(rows)
        if device.type != "cuda":
            return table
        if not torch.cuda.is_current_stream_capturing():
            return table.pin_memory().to(device, non_blocking=True)
        host = self.host[: len(rows)]
        host.copy_(table)
        return torch.empty_like(host, device=device).copy_(host, non_blocking=True)


def _addresses(entry: Entry, grad: Tensor, state: dict[str, Tensor]) -> list[int]:
    """As kernels/update.py has them, but for the rate; a float32 gradient has no copy beside."""
    copy = None if entry.copy is None or grad.dtype == torch.float32 else entry.copy.data
    tensors = (entry.weight, grad, *(state[name] for name in STATE), state["step"])
    return [*(t.data_ptr() for t in tensors), 0 if copy is None else copy.data_ptr()]


def _ready(weight: Tensor) -> bool:
    even = weight.data_ptr() % EVEN == 0
    return weight.dtype == torch.float32 and weight.is_contiguous() and even
