"""Parts of a recursion: vectors by turn, injection of what entered, halting and routing.

A halting part opens a record for each pass, which is told every round and then answers; a module
holds no state. Letters: B batch, N positions, d width, R rounds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.ops.rotary import sinusoid
from anyformer.parts.base import build, part
from anyformer.parts.init import Fresh

THETA = 10000.0
SPREAD = 0.5  # deviation of the logarithm of a drawn mean (arXiv:2502.05171)


class Inject(Fresh):
    """What entered the loop, e (B, N, d), put into its state h; concat starts as h + e."""

    def __init__(self, kind: str, dim: int):
        super().__init__()
        self.kind, self.dim = kind, dim
        param = lambda *shape: nn.Parameter(torch.empty(shape))
        self.weight = param(dim, dim if kind == "stable" else 2 * dim)
        self.bias = param(dim) if kind == "gated" else None
        self.decay = param(dim) if kind == "stable" else None
        self.delta = param(dim) if kind == "stable" else None

    def fresh(self, std: float) -> None:
        """A map that hands on both, or e; a gate half open; a decay of a half."""
        nn.init.normal_(self.weight, std=std)
        with torch.no_grad():
            for at in range(0, self.weight.shape[1] if self.bias is None else 0, self.dim):
                self.weight[:, at : at + self.dim].diagonal().add_(1.0)
        for vector in (self.bias, self.decay, self.delta):
            if vector is not None:
                nn.init.zeros_(vector)

    def read(self, e: Tensor) -> Tensor:
        """What is the same in each round: the share of e."""
        return F.linear(e, self.weight[:, -self.dim :], self.bias)

    def forward(self, h: Tensor, e: Tensor, read: Tensor) -> Tensor:
        """The state before a round."""
        if self.decay is not None and self.delta is not None:
            return torch.exp(-F.softplus(self.delta) * self.decay.exp()) * h + read
        mapped = F.linear(h, self.weight[:, : self.dim]) + read
        if self.kind == "concat":
            return mapped
        gate = mapped.sigmoid()
        return gate * h + (1 - gate) * e


@part(S.Loop)
class Loop(Fresh):
    """Vectors by turn, injection and halting, of a loop of so many rounds."""

    def __init__(self, spec: S.Loop, dim: int, turns: int, rounds: int):
        super().__init__()
        self.spec, self.rounds, self.dim = spec, rounds, dim
        self.step = nn.Parameter(torch.zeros(turns, dim)) if spec.step == "learned" else None
        mapped = spec.inject not in ("none", "add")
        self.inject = Inject(spec.inject, dim) if mapped else None
        self.halt = build(spec.halt, dim, rounds) if spec.halt is not None else None

    def fresh(self, std: float) -> None:
        """Steps that change nothing yet."""
        if self.step is not None:
            nn.init.zeros_(self.step)

    def stepped(self, x: Tensor, turn: int, at: Tensor) -> Tensor:
        """x (B, N, d) with the vector of a turn, and of its positions (1 or B, N) where asked."""
        if self.spec.step == "none":
            return x
        if self.step is not None:
            return x + self.step[turn].to(x.dtype)
        time = torch.full((1, 1), turn + 1, device=x.device)
        x = x + sinusoid(time, self.dim, THETA).to(x.dtype)
        if self.spec.step == "sinusoidal":
            return x
        return x + sinusoid(at, self.dim, THETA).to(x.dtype)

    def read(self, e: Tensor) -> Tensor:
        """What injection makes of e for all rounds."""
        return e if self.inject is None else self.inject.read(e)

    def injected(self, h: Tensor, e: Tensor, read: Tensor) -> Tensor:
        """The state h before a round, with what entered the loop."""
        if self.spec.inject == "none":
            return h
        return h + e if self.inject is None else self.inject(h, e, read)

    def count(self) -> int:
        """The rounds of a pass: in training drawn from torch's generator, where asked."""
        spec, rounds = self.spec, self.rounds
        if spec.drawn == "fixed" or not self.training:
            return rounds
        most = spec.most or rounds
        if spec.drawn == "uniform":
            return 1 + min(int(torch.rand(()).item() * most), most - 1)
        more = (spec.mean or rounds) - 1  # rounds beyond the first
        rate = more * math.exp(SPREAD * torch.randn(()).item() - SPREAD**2 / 2)
        return min(1 + int(torch.poisson(torch.tensor(rate)).item()), most)

    def begin(self, x: Tensor, keep: Tensor | None) -> Record | None:
        """The record of a pass over x (B, N, d), real where keep (B, N); None: nobody halts."""
        assert self.halt is None or isinstance(self.halt, Act | Exit | Route)
        return None if self.halt is None else self.halt.begin(x, keep)


class Unit(Fresh):
    """Linear maps of a state to few numbers; abstract."""

    def __init__(self, dim: int, outputs: int, bias: float = 0.0):
        super().__init__()
        self.opening = bias
        self.weight = nn.Parameter(torch.empty(outputs, dim))
        self.bias = nn.Parameter(torch.empty(outputs))

    def fresh(self, std: float) -> None:
        """Small weights, and the bias that is asked for."""
        nn.init.normal_(self.weight, std=std)
        nn.init.constant_(self.bias, self.opening)

    def numbers(self, x: Tensor, at: slice = slice(None)) -> Tensor:
        """x (B, N, d) -> (B, N, outputs), or some of them, in float32 at least."""
        y = F.linear(x, self.weight[at], self.bias[at])
        return y.to(torch.promote_types(y.dtype, torch.float32))


class Record(ABC):
    """What a halting part keeps of one pass; abstract."""

    name: str  # of what it adds to the loss

    @abstractmethod
    def after(self, t: int, before: Tensor, new: Tensor, last: bool) -> Tensor:
        """The state that goes on behind round t, from those before it and behind it."""

    @abstractmethod
    def answer(self) -> Tensor:
        """What leaves the loop (B, N, d)."""

    @abstractmethod
    def extra(self) -> Tensor:
        """What each position adds to the loss, before its weight (B, N)."""


@dataclass
class Acting(Record):
    """ACT of one pass; numbers of positions are (B, N, 1)."""

    unit: Act
    out: Tensor
    total: Tensor  # what p add up to so far
    going: Tensor  # who hasn't halted
    taken: Tensor  # rounds
    rest: Tensor  # remainders
    name: str = "ponder"

    def after(self, t: int, before: Tensor, new: Tensor, last: bool) -> Tensor:
        """The new state of who is going, the old one of who halted."""
        new = torch.where(self.going, new, before)
        left = 1 - self.total
        if last:
            ends, weight = self.going, left
        else:
            p = self.unit.numbers(new).sigmoid()
            ends = self.going & (self.total + p > 1 - self.unit.epsilon)
            weight = torch.where(ends, left, p)
        weight = weight * self.going
        self.out = self.out + weight.to(new.dtype) * new
        self.taken = self.taken + self.going
        self.rest = self.rest + left * ends
        self.total, self.going = self.total + weight, self.going & ~ends
        return new

    def answer(self) -> Tensor:
        """Σ p·h."""
        return self.out

    def extra(self) -> Tensor:
        """Rounds and remainder."""
        return (self.taken + self.rest)[..., 0]


@part(S.Act)
class Act(Unit):
    """The unit whose sigmoid says how much of its halting a position has done."""

    def __init__(self, spec: S.Act, dim: int, rounds: int):
        super().__init__(dim, 1, spec.bias)
        self.epsilon = spec.epsilon

    def begin(self, x: Tensor, keep: Tensor | None) -> Record:
        """A record in which everybody is going."""
        none = torch.zeros_like(x[..., :1], dtype=torch.promote_types(x.dtype, torch.float32))
        going = torch.ones_like(none, dtype=torch.bool)
        return Acting(self, torch.zeros_like(x), none, going, none, none)


@dataclass
class Exiting(Record):
    """Exits of one pass; states and p of all rounds where they are trained."""

    unit: Exit
    out: Tensor
    left: Tensor  # (B, N, 1): the probability of being there still
    shares: list[Tensor] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    name: str = "exit"

    def after(self, t: int, before: Tensor, new: Tensor, last: bool) -> Tensor:
        """The new state; who has not left with enough certainty answers with it so far."""
        gone = 1 - self.left
        self.out = torch.where(gone >= self.unit.share, self.out, new) if t else new
        stay = torch.zeros_like(self.left) if last else 1 - self.unit.numbers(new).sigmoid()
        self.shares.append(self.left * (1 - stay))
        self.left = self.left * stay
        if self.unit.training:
            self.states.append(new)
        return new

    def answer(self) -> Tensor:
        """The state of the first round at which p adds up to enough."""
        return self.out

    def extra(self) -> Tensor:
        """The negative entropy of p."""
        p = torch.cat(self.shares, -1)
        return (p * p.clamp(min=torch.finfo(p.dtype).tiny).log()).sum(-1)


@part(S.Exit)
class Exit(Unit):
    """The gate that says whether to leave behind a round."""

    def __init__(self, spec: S.Exit, dim: int, rounds: int):
        super().__init__(dim, 1)
        self.share = spec.share

    def begin(self, x: Tensor, keep: Tensor | None) -> Record:
        """A record in which everybody is there."""
        wide = torch.promote_types(x.dtype, torch.float32)
        return Exiting(self, x, torch.ones_like(x[..., :1], dtype=wide))


@dataclass
class ByToken(Record):
    """Depths that positions chose before the loop."""

    entered: Tensor
    depth: Tensor  # (B, N, 1)
    gain: Tensor  # its probability
    balance: Tensor  # (B, N)
    state: Tensor
    name: str = "route"

    def after(self, t: int, before: Tensor, new: Tensor, last: bool) -> Tensor:
        """The new state of who goes so deep."""
        self.state = torch.where(self.depth >= t, new, before)
        return self.state

    def answer(self) -> Tensor:
        """What entered, and the change by its probability."""
        return self.entered + self.gain.to(self.entered.dtype) * (self.state - self.entered)

    def extra(self) -> Tensor:
        """R · Σ share of positions · mean probability, over the depths, of a row."""
        return self.balance


@dataclass
class ByRound(Record):
    """Rounds that chose positions; who wasn't chosen once is out."""

    unit: Route
    keep: Tensor  # (B, N)
    going: Tensor  # (B, N)
    state: Tensor
    off: Tensor  # (B, N): Σ cross-entropy
    name: str = "route"

    def after(self, t: int, before: Tensor, new: Tensor, last: bool) -> Tensor:
        """The change of who goes on, by his sigmoid."""
        logit = self.unit.numbers(before, slice(t, t + 1))[..., 0]
        chosen = self._chosen(logit, self.unit.capacity[t])
        each = F.binary_cross_entropy_with_logits(logit, chosen.to(logit.dtype), reduction="none")
        self.off = self.off + each / len(self.unit.capacity)
        self.going = self.going & (chosen if self.unit.training else logit > 0)
        gain = (logit.sigmoid() * self.going).to(new.dtype)[..., None]
        self.state = before + gain * (new - before)
        return self.state

    def _chosen(self, logit: Tensor, share: float) -> Tensor:
        """The positions (B, N) of each row with the largest logits among those that may go on."""
        free = self.going & self.keep
        order = logit.detach().masked_fill(~free, -torch.inf).argsort(-1, descending=True)
        places = order.argsort(-1)
        most = (self.keep.sum(-1, keepdim=True) * share).ceil()
        return free & (places < most)

    def answer(self) -> Tensor:
        """The last state."""
        return self.state

    def extra(self) -> Tensor:
        """The cross-entropy of the sigmoids with the choice, a mean over rounds."""
        return self.off


@part(S.Route)
class Route(Unit):
    """The router: logits of depths before the loop, or of going on at each round."""

    def __init__(self, spec: S.Route, dim: int, rounds: int):
        super().__init__(dim, rounds)
        self.choice = spec.choice
        falling = tuple(1 - t / rounds for t in range(rounds))
        self.capacity = spec.capacity or falling

    def begin(self, x: Tensor, keep: Tensor | None) -> Record:
        """A record of who goes how deep, or of everybody going."""
        keep = torch.ones_like(x[..., 0], dtype=torch.bool) if keep is None else keep
        if self.choice == "expert":
            off = torch.zeros_like(x[..., 0], dtype=torch.promote_types(x.dtype, torch.float32))
            return ByRound(self, keep, torch.ones_like(keep), x, off)
        p = self.numbers(x).softmax(-1)  # (B, N, R)
        gain, depth = p.max(-1, keepdim=True)
        real = keep[..., None].to(p.dtype)
        taken = F.one_hot(depth[..., 0], p.shape[-1]).to(p.dtype)
        share = lambda y: (y * real).sum(1) / real.sum(1).clamp(min=1)  # (B, R)
        balance = p.shape[-1] * (share(taken) * share(p)).sum(-1, keepdim=True)
        return ByToken(x, depth, gain, balance.expand(keep.shape), x)
