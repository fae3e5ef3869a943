"""Wiring: sublayers into blocks, blocks into a stack that runs its schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.model import entered
from anyformer.model.loop import plan_of, run_loop
from anyformer.model.reversible import run_reversible
from anyformer.parts import build
from anyformer.parts.convolution import Convolution
from anyformer.parts.distance import Distances
from anyformer.parts.loop import Loop
from anyformer.parts.position import Untied
from anyformer.parts.state import Call
from anyformer.spec.parallel import recalls
from anyformer.spec.schedule import closing, ring, turns
from anyformer.spec.walk import head_dim, lora_of, own_maps, qk_dim


class Sublayer(nn.Module):
    """A branch, its norm and its way into the stream."""

    def __init__(
        self,
        spec: S.Sublayer,
        dim: int,
        own: tuple[str, ...] = (),
        lender: Sublayer | None = None,
        lora: S.Lora | None = None,
    ):
        super().__init__()
        mine = lambda name: lender is None or name in own
        self.lender = () if lender is None else (lender,)  # in a tuple: its weights stay its own
        self.place, self.dropout = spec.place, spec.dropout
        self.recalls = any(map(recalls, spec.leaves))
        self.optional = isinstance(spec.branch, S.Attention) and spec.branch.optional
        branch, terms = _with_terms_apart(spec, own)
        self.branch = build(branch, dim) if mine(spec.kind) else None
        self.relative = None
        if isinstance(branch, S.Attention) and terms:
            sizes = branch.heads, qk_dim(branch, dim), dim
            self.relative = nn.ModuleList(build(term, *sizes) for term in terms)
        self.norm = build(spec.norm, dim) if spec.norm is not None and mine("norm") else None
        sandwich = spec.norm is not None and spec.place == "sandwich" and mine("norm")
        self.after = build(spec.norm, dim) if sandwich else None
        self.residual = build(spec.residual, dim) if mine("gain") else None
        maps = {} if lender is None else own_maps(own, spec, dim)
        made = {name: nn.Linear(*size) for name, size in maps.items()}
        self.maps = nn.ModuleDict(made) if made else None
        lora = lora_of(lora, own, spec, dim)
        self.lora = lora and nn.ModuleList(build(lora, leaf, dim) for leaf in spec.leaves)

    @property
    def used(self) -> tuple[Any, Any, Any, Any]:
        """Branch, norm, norm after the branch and residual: its own, or those that it is lent."""
        own = (self.branch, self.norm, self.after, self.residual)
        if not self.lender:
            return own
        branch, norm, after, residual = self.lender[0].used
        return own[0] or branch, own[1] or norm, own[2] or after, own[3] or residual

    def output(self, x: Tensor, call: Call, path: str) -> Tensor:
        """What the branch says of the stream x (B, N, d), before it joins it."""
        y = call.recall(path, x) if self.recalls and not call.reads else x
        norm = self.used[1]
        return self.said(norm(y) if norm is not None and self.place != "post" else y, call, path)

    def said(self, y: Tensor, call: Call, path: str) -> Tensor:
        """What the branch says of y (B, M, d), the stream behind its norm."""
        branch, _, after, _ = self.used
        if self.relative is not None:
            call = replace(call, relative=(*self.relative, *call.relative))
        if self.maps is not None or self.lora is not None:
            call = replace(call, lora=tuple(self.lora or ()), maps=self.maps)
        y = branch(y, call, path)
        y = y if after is None else after(y)
        return F.dropout(y, self.dropout) if self.dropout and self.training else y

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        """The stream after this sublayer."""
        if self.optional and call.context is None:
            return x
        _, norm, _, residual = self.used
        x = residual(x, self.output(x, call, path))
        return norm(x) if norm is not None and self.place == "post" else x


class Block(nn.Sequential):
    """Sublayers that run one after another: the unit of sharing, sharding and compiling."""

    def forward(self, x: entered.Stream, call: Call, path: str) -> Any:  # type: ignore[override]
        """x (B, N, d) -> (B, N, d), where the call hands streams on as pairs; path: which turn."""
        if entered.fits(self, x[0] if isinstance(x, tuple) else x, call):
            return entered.run(self, x, call, path)
        x = entered.whole(x)
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
        self.blocks = nn.ModuleList()
        for i, (block, lender) in enumerate(zip(plan.blocks, plan.lenders, strict=True)):
            lent: Any = (None,) * len(block) if lender == i else self.blocks[lender]
            pairs, lora = zip(block, lent, strict=True), plan.loras[i]
            self.blocks.append(Block(*(Sublayer(s, dim, spec.own, by, lora) for s, by in pairs)))
        self.closing = nn.ModuleList(build(norm, dim) for norm in closing(spec))
        self.span = spec.schedule.span if isinstance(spec.schedule, S.Superblocks) else spec.depth
        sizes = _position_sizes(plan.blocks, dim)
        self.relative = nn.ModuleList(build(r, *sizes[:2], dim) for r in spec.relative)
        untied = build(spec.untied, sizes[0], sizes[2], dim) if spec.untied is not None else None
        assert untied is None or isinstance(untied, Untied)
        self.untied = untied
        distances = build(spec.distances, dim) if spec.distances is not None else None
        assert distances is None or isinstance(distances, Distances)
        self.distances = distances
        beside = build(spec.convolution, dim) if spec.convolution is not None else None
        assert beside is None or isinstance(beside, Convolution)
        self.convolution = beside
        self.plan = None if spec.loop is None else plan_of(ring(spec), turns(spec))
        loop = spec.loop and self.plan and build(spec.loop, dim, *self.plan.sizes)
        assert loop is None or isinstance(loop, Loop)
        self.loop = loop
        self.norm = build(spec.final_norm, dim) if spec.final_norm is not None else None
        self.hands, self.last = False, entered.last  # as train.prepare sets them
        self.out = nn.Linear(dim, spec.out, bias=False) if spec.out is not None else None

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """x (B, N, d) -> (B, N, d), or the width that the spec asks for."""
        call.relative = tuple(self.relative)
        if self.untied is not None:
            call.untied = self.untied.known(call)
        if self.distances is not None:
            span = call.far(1 - call.start - call.length), call.length - 1
            apart = self.distances
            call.distances = call.once((apart, *span), lambda: apart(*span))
        if self.loop is not None and self.plan is not None:
            return self.ended(run_loop(self, self.loop, self.plan, x, call))
        run = run_reversible if self.spec.reversible else Stack._run
        return self.ended(run(self, x, call))

    def ended(self, x: entered.Stream) -> Tensor:
        """The stream (B, N, d) behind the last norm and the map to another width."""
        if isinstance(x, tuple) and self.norm is not None:
            y = self.last(self.norm, x)
        else:
            y = entered.whole(x) if self.norm is None else self.norm(x)
        return y if self.out is None else self.out(y)

    def _run(self, x: Tensor, call: Call) -> entered.Stream:
        if entered.hands(self, call):
            return self._handed(x, call)
        rate = self.spec.layer_dropout if self.training else 0.0
        x = below = into = self.blank(x, call)
        for i, b in enumerate(self.schedule):
            if call.hidden is not None:
                call.hidden.append(x)
            block = self.blocks[b]
            assert isinstance(block, Block)
            into = x if i % self.span == 0 else into
            if call.asking is not None and i + 1 == len(self.schedule):
                return self.closed(self._asked(x, call, block, i), into, i + 1)
            skipped = rate > 0 and torch.rand(()).item() < rate
            x = block.skip(x, call, str(i)) if skipped else block(x, call, str(i))
            if i == 0 and self.convolution is not None:
                x = self.convolution(x, below, call)
            x = self.blank(self.closed(x, into, i + 1), call)
        return x

    def _handed(self, x: entered.Stream, call: Call) -> entered.Stream:
        """The same where blocks alone touch the stream, which is handed on as they leave it."""
        call.hands = True
        for i, b in enumerate(self.schedule):
            x = self.blocks[b](x, call, str(i))
        call.hands = False
        return x

    def closed(self, x: Tensor, into: Tensor, done: int) -> Tensor:
        """x where a superblock ends: with what entered it and normed, as the spec asks."""
        schedule = self.spec.schedule
        if done % self.span or not isinstance(schedule, S.Superblocks):
            return x
        x = x + into if schedule.around else x
        at = 0 if schedule.one_norm else done // self.span - 1
        return self.closing[at](x) if self.closing else x

    def _asked(self, x: Tensor, call: Call, block: Block, i: int) -> Tensor:
        """The last block twice, asked by x and its positions, its keys and values those of x."""
        assert call.asking is not None
        call.source, y = x, x + call.asking.to(x.dtype)
        for turn in range(2):
            y = self.blank(block(y, call, str(i + turn)), call)
        call.source = None
        return y

    def blank(self, x: Tensor, call: Call) -> Tensor:
        """x (B, N, d) with zeros for padding, where the spec asks for them."""
        if call.keep is None or not self.spec.blank:
            return x
        return x.masked_fill(~call.keep[:, -x.shape[1] :, None], 0.0)


def _with_terms_apart(
    spec: S.Sublayer, own: tuple[str, ...]
) -> tuple[S.Branch, tuple[S.Relative, ...]]:
    """The branch, and relative positions that belong to each application and not to it."""
    branch = spec.branch
    if "relative" not in own or spec.kind in own or not isinstance(branch, S.Attention):
        return branch, ()
    return replace(branch, relative=()), branch.relative


def _position_sizes(blocks: tuple[tuple[S.Sublayer, ...], ...], dim: int) -> tuple[int, int, int]:
    """Heads and sizes of q and of v of the stack's self-attention, for shared positions."""
    for block in blocks:
        for sub in block:
            for leaf in sub.leaves:
                if isinstance(leaf, S.Attention) and not leaf.cross:
                    return leaf.heads, qk_dim(leaf, dim), head_dim(leaf, dim)
    return 0, 0, 0
