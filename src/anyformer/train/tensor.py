"""Tensor parallelism: heads of an attention and channels of a feed-forward shared by ranks.

What splits (q, k, v, up, gate) is cut by outputs, what joins again (out, down) by inputs, and one
sum over the ranks follows each branch (arXiv:1909.08053). Weights that are cut are DTensors under
their old names, so checkpoints don't know of it. Everything else is whole on every rank; where only
a share of the heads uses it, its gradient is summed. Ranks that share a model read the same rows
with the same seed; within a branch each draws its own dropout.
Letters: H heads, G key heads, D size of q and k, R distances.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.func import functional_call

from anyformer import spec as S
from anyformer.errors import SpecError, TrainError
from anyformer.model.stack import Sublayer
from anyformer.ops.relative import Relative
from anyformer.parts.attention import Attention
from anyformer.parts.feedforward import FeedForward
from anyformer.parts.parallel import Parallel
from anyformer.parts.position import relative_of
from anyformer.parts.state import Call
from anyformer.train.ranks import seed


class _Copy(torch.autograd.Function):
    """The same on every rank; gradients are summed over them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:  # type: ignore[override]
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _Sum(torch.autograd.Function):
    """The sum over ranks; each gets the whole gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:  # type: ignore[override]
        x = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad, None


@dataclass(frozen=True)
class Share:
    """The share of one rank among those that split a model."""

    mesh: DeviceMesh
    rank: int
    size: int

    def copied(self, x: Any) -> Any:
        """A tensor that each rank uses a share of; None stays None."""
        return x if x is None else _Copy.apply(x, self.mesh.get_group())

    def summed(self, x: Tensor) -> Tensor:
        """What each rank has a summand of."""
        return _Sum.apply(x, self.mesh.get_group())  # type: ignore[return-value]

    def mine(self, x: Any, heads: int) -> Any:
        """This rank's heads of a tensor (H or 1, …) that is whole on every rank."""
        if x is None:
            return None
        x, each = self.copied(x), heads // self.size
        return x if x.shape[0] == 1 else x[self.rank * each : (self.rank + 1) * each]

    @contextmanager
    def apart(self, x: Tensor, random: bool) -> Iterator[None]:
        """Random numbers of this rank's own, where some are drawn; afterwards all agree again."""
        if not random:
            yield
            return
        drawn = int(torch.randint(2**62, ()))
        with torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):
            seed(x.device, drawn, self.rank)
            yield


def local(x: Tensor | None) -> Tensor | None:
    """This rank's part of a tensor."""
    return x.to_local() if isinstance(x, DTensor) else x


class SplitAttention(Attention):
    """An attention with this rank's heads."""

    share: Share
    whole: S.Attention  # the spec of all heads

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        """x (B, M, d), whose last N rows ask -> (B, N, d)."""
        if call.weights is not None:
            raise TrainError("attention weights can't be asked of heads that ranks share")
        copied = self.share.copied
        call = replace(call, context=copied(call.context), source=copied(call.source))
        with self.share.apart(x, self.training and self.spec.dropout > 0):
            return super().forward(copied(x), call, path)

    def _queries(self, q: Tensor) -> Tensor:
        return self._normed(self.q_norm, self._split(q, self.size))

    def _keys(self, k: Tensor) -> Tensor:
        return self._normed(self.k_norm, self._split(k, self.size))

    def _normed(self, norm: nn.Module | None, x: Tensor) -> Tensor:
        if norm is None:
            return x
        copies = {n: self.share.copied(p) for n, p in norm.named_parameters()}
        return functional_call(norm, copies, (x,))

    def _shifted(self, q: Tensor, call: Call) -> Tensor:
        for item in self._relatives(call):
            added = self.share.mine(relative_of(item).content(), self.whole.heads)  # (H, D)
            q = q if added is None else q + added[:, None].to(q.dtype)
        return q

    def _untied(
        self, q: Tensor, k: Tensor, channels: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        mine = lambda c: self.share.mine(c.transpose(0, 1), self.whole.heads).transpose(0, 1)
        return super()._untied(q, k, (mine(channels[0]), mine(channels[1])))

    def _tables(self, call: Call, new: int, keys: int, scale: float) -> Relative | None:
        found = super()._tables(call, new, keys, scale)
        if found is None:
            return None
        mine = lambda t: self.share.mine(t, self.whole.heads)
        names = ("bias", "query", "key", "slope")
        return replace(found, **{name: mine(getattr(found, name)) for name in names})


class SplitFeedForward(FeedForward):
    """A feed-forward with this rank's channels."""

    share: Share

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        """x (B, T, d) -> (B, T, d)."""
        with self.share.apart(x, self.training and self.dropout > 0):
            return super().forward(self.share.copied(x), call, path)


# ------------------------------------------------------------------ what can be split


def unsplit(spec: S.Attention) -> str | None:
    """The switch that keeps an attention whole on every rank, or None."""
    found = {
        "talking": spec.talking != "no",
        "collaborate": spec.collaborate is not None,
        "carry": spec.carry,
        "disentangled": spec.disentangled is not None,
        "blocks": spec.blocks is not None,
        "memory": spec.memory > 0,
        "mods": any(isinstance(m, S.Temperature) for m in spec.mods),
    }
    return next((name for name, kept in found.items() if kept), None)


def split(module: nn.Module, mesh: DeviceMesh) -> list[str]:
    """Split the branches inside a module, in place; what stays whole and why, in words.

    Heads and channels that the ranks can't share evenly are an error, and so is a module of which
    nothing can be split.
    """
    share = Share(mesh, mesh.get_local_rank(), mesh.size())
    lent = _with_lora(module)
    kept: list[str] = []
    count = 0
    for name, part in module.named_modules():
        if type(part) is not Attention and type(part) is not FeedForward:
            continue
        why = "lora" if part in lent else _why(part)
        if why is not None:
            kept.append(f"{name} ({why})")
            continue
        if isinstance(part, Attention):
            _split_attention(part, share)
        elif isinstance(part, FeedForward):
            _split_feedforward(part, share)
        count += 1
    if not count:
        told = ", ".join(kept[:3]) or "it has no attention and no feed-forward"
        raise SpecError(f"tensor={share.size}: nothing of this model can be split: {told}")
    return kept


def _why(part: nn.Module) -> str | None:
    switch = unsplit(part.spec) if isinstance(part, Attention) else None
    plain = all(type(m) is nn.Linear for m in _linears(part).values())
    return switch if switch is not None else None if plain else "an adapter"


def _linears(part: nn.Module) -> dict[str, nn.Module]:
    names = ("q", "k", "v", "out") if isinstance(part, Attention) else ("up", "gate", "down")
    return {n: m for n, m in part.named_children() if n in names}


def _with_lora(module: nn.Module) -> set[nn.Module]:
    """Branches that an application adds its own maps to, or has some of its own for."""
    found: set[nn.Module] = set()
    for sublayer in module.modules():
        if isinstance(sublayer, Sublayer) and (sublayer.lora or sublayer.maps) is not None:
            branch = sublayer.used[0]
            found |= set(branch.branches) if isinstance(branch, Parallel) else {branch}
    return found


# ------------------------------------------------------------------ splitting


def _split_attention(part: Attention, share: Share) -> None:
    spec, size = part.spec, share.size
    groups = spec.kv_heads or spec.heads
    _even(spec.heads, share, "heads")
    if groups % size and size % groups:
        raise SpecError(
            f"kv_heads={groups} and tensor={size}: take a tensor that divides it or is a multiple"
        )
    part.__class__ = SplitAttention
    assert isinstance(part, SplitAttention)
    part.share, part.whole = share, spec
    heads, each = spec.heads // size, max(groups // size, 1)
    part.spec = replace(spec, heads=heads, kv_heads=each)
    _by_outputs(part.q, share)
    for linear, width in ((part.k, part.size), (part.v, part.value_size)):
        if groups % size == 0:
            _by_outputs(linear, share)
        else:
            _one_group(linear, share, share.rank * groups // size, width)
    _by_inputs(part.out, share)


def _split_feedforward(part: FeedForward, share: Share) -> None:
    _even(part.up.out_features, share, "hidden")
    part.__class__ = SplitFeedForward
    assert isinstance(part, SplitFeedForward)
    part.share = share
    _by_outputs(part.up, share)
    if part.gate is not None:
        _by_outputs(part.gate, share)
    _by_inputs(part.down, share)


def _even(count: int, share: Share, name: str) -> None:
    if count % share.size:
        raise SpecError(f"{name}={count} can't be shared by tensor={share.size} ranks evenly")


def _cut(linear: nn.Linear, name: str, share: Share, axis: int) -> None:
    whole = linear.get_parameter(name)
    cut = distribute_tensor(whole.detach(), share.mesh, [Shard(axis)])
    linear.register_parameter(name, nn.Parameter(cut, requires_grad=whole.requires_grad))


def _by_outputs(linear: nn.Linear, share: Share) -> None:
    """Each rank has rows of the weight."""
    for name, _ in list(linear.named_parameters()):
        _cut(linear, name, share, 0)

    def forward(x: Tensor) -> Tensor:
        return F.linear(x, local(linear.weight), local(linear.bias))  # type: ignore[arg-type]

    linear.forward = forward  # type: ignore[method-assign]


def _by_inputs(linear: nn.Linear, share: Share) -> None:
    """Each rank has columns of the weight; the sum over ranks is what it says."""
    _cut(linear, "weight", share, 1)

    def forward(x: Tensor) -> Tensor:
        y = share.summed(F.linear(x, local(linear.weight)))  # type: ignore[arg-type]
        return y if linear.bias is None else y + linear.bias.to(y.dtype)

    linear.forward = forward  # type: ignore[method-assign]


def _one_group(linear: nn.Linear, share: Share, group: int, width: int) -> None:
    """Fewer key heads than ranks: the weight stays whole, and each rank uses one head of it."""
    rows = slice(group * width, (group + 1) * width)

    def forward(x: Tensor) -> Tensor:
        bias = share.copied(linear.bias)
        return F.linear(x, share.copied(linear.weight)[rows], None if bias is None else bias[rows])

    linear.forward = forward  # type: ignore[method-assign]
