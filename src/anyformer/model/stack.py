"""Wiring: sublayers into blocks, blocks into a stack that runs its schedule."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.model.reversible import run_reversible
from anyformer.parts import build
from anyformer.parts.position import Untied
from anyformer.parts.state import Call
from anyformer.spec.parallel import kind_of
from anyformer.spec.walk import head_dim, qk_dim


class Sublayer(nn.Module):
    """A branch, its norm and its way into the stream."""

    def __init__(self, spec: S.Sublayer, dim: int):
        super().__init__()
        self.place, self.dropout = spec.place, spec.dropout
        self.recalls = any(kind_of(leaf) == "attention" for leaf in spec.leaves)
        self.branch = build(spec.branch, dim)
        self.norm = build(spec.norm, dim) if spec.norm is not None else None
        sandwich = spec.norm is not None and spec.place == "sandwich"
        self.after = build(spec.norm, dim) if sandwich else None
        self.residual = build(spec.residual, dim)

    def output(self, x: Tensor, call: Call, path: str) -> Tensor:
        """What the branch says of the stream x (B, N, d), before it joins it."""
        y = call.recall(path, x) if self.recalls else x
        if self.norm is not None and self.place != "post":
            y = self.norm(y)
        y = self.branch(y, call, path)
        y = y if self.after is None else self.after(y)
        return F.dropout(y, self.dropout) if self.dropout and self.training else y

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        """The stream after this sublayer."""
        x = self.residual(x, self.output(x, call, path))
        return self.norm(x) if self.norm is not None and self.place == "post" else x


class Block(nn.ModuleList):
    """Sublayers that run one after another: the unit of sharing, sharding and compiling."""

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        """x (B, N, d) -> (B, N, d); path names the application."""
        for j, sublayer in enumerate(self):
            x = sublayer(x, call, f"{path}.{j}")
        return x

    def skip(self, x: Tensor, call: Call, path: str) -> Tensor:
        """x itself; its attentions still remember what they would have read."""
        for j, sublayer in enumerate(self):
            if isinstance(sublayer, Sublayer) and sublayer.recalls:
                call.recall(f"{path}.{j}", x)
        return x


class Stack(nn.Module):
    """Blocks in the order of the schedule, then a norm."""

    def __init__(self, spec: S.Stack, dim: int):
        super().__init__()
        self.spec = spec
        plan = S.layout(spec)
        self.schedule = plan.schedule
        self.blocks = nn.ModuleList(Block(Sublayer(s, dim) for s in b) for b in plan.blocks)
        sizes = _position_sizes(plan.blocks, dim)
        self.relative = nn.ModuleList(build(r, *sizes[:2], dim) for r in spec.relative)
        untied = build(spec.untied, sizes[0], sizes[2], dim) if spec.untied is not None else None
        assert untied is None or isinstance(untied, Untied)
        self.untied = untied
        self.norm = build(spec.final_norm, dim) if spec.final_norm is not None else None

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """x (B, N, d) -> (B, N, d)."""
        call.relative = tuple(self.relative)
        if self.untied is not None:
            call.untied = self.untied(call.positions, call.length, call.relative)
        x = run_reversible(self, x, call) if self.spec.reversible else self._run(x, call)
        return x if self.norm is None else self.norm(x)

    def _run(self, x: Tensor, call: Call) -> Tensor:
        rate = self.spec.layer_dropout if self.training else 0.0
        for i, b in enumerate(self.schedule):
            if call.hidden is not None:
                call.hidden.append(x)
            block = self.blocks[b]
            assert isinstance(block, Block)
            skipped = rate > 0 and torch.rand(()).item() < rate
            x = block.skip(x, call, str(i)) if skipped else block(x, call, str(i))
        return x


def _position_sizes(blocks: tuple[tuple[S.Sublayer, ...], ...], dim: int) -> tuple[int, int, int]:
    """Heads and sizes of q and of v of the stack's self-attention, for shared positions."""
    for block in blocks:
        for sub in block:
            for leaf in sub.leaves:
                if isinstance(leaf, S.Attention) and not leaf.cross:
                    return leaf.heads, qk_dim(leaf, dim), head_dim(leaf, dim)
    return 0, 0, 0
