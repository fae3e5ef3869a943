"""A twin for decoding on a GPU whose sublayers are few kernels.

A norm moves into the maps that read it, an activation behind them, and the stream into the map that
ends a branch (ops/rows.py). A plain attention is one kernel between its maps, and the end of a
model one that knows the likeliest token (stepping.py). What is made otherwise stays as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from anyformer.generate.lean import Laid, LeanTwin
from anyformer.generate.stepping import (
    Ending,
    Entering,
    Stepping,
    ends_plainly,
    enters_plainly,
    plain,
)
from anyformer.model.heads import Vocabulary
from anyformer.model.model import Model
from anyformer.model.stack import Sublayer
from anyformer.ops.rows import MOST, Norm, Pair, Rows, lacks
from anyformer.parts.attention import Attention
from anyformer.parts.feedforward import ACTIVATIONS, FeedForward, identity
from anyformer.parts.norm import LayerNorm, RMSNorm
from anyformer.parts.residual import Add
from anyformer.parts.state import Call
from anyformer.parts.twin import called, heard

NAMES = {act: name for name, act in ACTIVATIONS.items()}
EXIT = {Attention: "out", FeedForward: "down"}  # the map that ends a branch


class Fused(Sublayer):
    """A sublayer whose branch reads the stream and adds to it; made by `fused` alone."""

    exit: str
    leave: Rows
    step: Stepping | None  # of an attention that is plain
    other: Sublayer  # as it is otherwise, for what the kernels aren't meant for

    def output(self, x: Tensor, call: Call, path: str) -> Tensor:
        """What the branch says of the stream alone, as two streams in turn ask for it."""
        return self.other.output(x, call, path)

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        """The stream after this sublayer."""
        lent = call.reads or call.source is not None  # keys that aren't made from x here
        rows = x.shape[0] * x.shape[1]
        steps = rows <= MOST and not lent and self.step is not None
        if steps and self.step.serves(x, call, path):  # type: ignore[union-attr]
            return self._stepped(x, call, path, rows <= self.leave.most)
        if rows > self.leave.most or lent:
            return self.other(x, call, path)
        maps: Any = {self.exit: lambda y: self.leave(y, x)}
        return self.branch(x, replace(call, maps=maps), path)  # type: ignore[misc]

    def _stepped(self, x: Tensor, call: Call, path: str, few: bool) -> Tensor:
        """The stream after a plain attention, the maps of few rows by kernels of ours too."""
        assert self.step is not None
        if few:
            y = self.step(self.branch.together(x), call, path)  # type: ignore[union-attr]
            return self.leave(y, x)
        branch: Any = self.other.branch
        y = x if self.other.norm is None else self.other.norm(x)
        return x + branch.out(self.step(branch.together(y), call, path))


def fused(model: Model) -> Model:
    """The twin of a model in evaluation, with fused sublayers where they can be."""
    with torch.no_grad():
        made = _Fusing(model).of(model)
    assert isinstance(made, Model)
    return made


class _Fusing(LeanTwin):
    """A lean twin; sublayers that `fits` finds become `Fused`."""

    def __init__(self, model: Model):
        super().__init__(Laid, None)
        subs = [m for m in model.modules() if isinstance(m, Sublayer)]
        self.shared = {id(lent) for sub in subs for lent in sub.lender}

    def kind(self, module: nn.Module) -> type[nn.Module]:
        if enters_plainly(module):
            return called(Entering)
        return called(Fused) if self.fits(module) else super().kind(module)

    def fits(self, module: nn.Module) -> bool:
        """Whether a sublayer is a norm, a branch of known maps and a plain sum."""
        if not isinstance(module, Sublayer) or module.lender or id(module) in self.shared:
            return False
        more = (module.after, module.maps, module.lora, module.relative)
        if any(x is not None for x in more) or module.optional or module.place == "post":
            return False
        residual, branch = module.residual, module.branch
        plain = type(residual) is Add and residual.skip == residual.branch == 1.0
        parts = [m for m in (module.norm, branch, residual) if m is not None]
        if not plain or any(heard(p) for m in parts for p in m.modules()):
            return False
        if module.norm is not None and type(module.norm) not in (LayerNorm, RMSNorm):
            return False
        return _maps_of(branch) is not None

    def dress(self, module: nn.Module, own: dict[str, Any]) -> None:
        super().dress(module, own)
        if isinstance(module, Model) and ends_plainly(module):
            self._end(module, own)
        if not isinstance(module, Sublayer) or not self.fits(module):
            return
        other = object.__new__(called(Sublayer))
        other.__dict__.update(own)
        branch, twin = module.branch, own["branch"]
        inner = object.__new__(type(twin))
        inner.__dict__.update(twin.__dict__)
        norm, step = None if module.norm is None else _norm(module.norm), None
        if isinstance(branch, Attention):
            step = Stepping(branch) if plain(branch) else None
            inner.__dict__["together"] = Rows(_joined(branch, twin.together), norm)
        else:
            assert isinstance(branch, FeedForward)
            gate = None if branch.gate is None else _pair(branch.gate)
            up = Rows(_pair(branch.up), norm, gate, NAMES[branch.act])
            inner.__dict__.update(up=up, gate=None, act=identity)
        name = EXIT[type(branch)]  # type: ignore[index]
        leave = Rows(_pair(getattr(branch, name)))
        own.update(branch=inner, exit=name, other=other, leave=leave, step=step)

    def _end(self, model: Model, own: dict[str, Any]) -> None:
        """The last norm goes into the map to the vocabulary."""
        norm, head, stack = model.stack.norm, model.head, model.stack
        assert isinstance(head, Vocabulary)
        weight = model.token_table() if head.weight is None else head.weight
        known = norm is None or type(norm) in (LayerNorm, RMSNorm)
        if not known or weight is None or lacks(weight) is not None:
            return
        if any(heard(m) for m in (norm, head, stack) if m is not None):
            return
        pair = weight.detach(), None if head.bias is None else head.bias.detach()
        rows = Rows(pair, None if norm is None else _norm(norm))
        last, before = own["head"].__dict__, own["stack"].__dict__
        last["map"] = Ending(rows, before["norm"], last["map"], head.spec.cap)
        before["norm"] = None


def _maps_of(branch: nn.Module | None) -> list[nn.Linear] | None:
    """The maps of a branch that kernels can run, or None."""
    if type(branch) is Attention:
        spec, maps = branch.spec, [branch.q, branch.k, branch.v, branch.out]
        if any((spec.cross, spec.infused, spec.disentangled, spec.gate == "glu")):
            return None
        if len({m.bias is None for m in maps[:3]}) > 1:
            return None
    elif type(branch) is FeedForward:
        maps = [m for m in (branch.up, branch.gate, branch.down) if m is not None]
    else:
        return None
    sure = all(type(m) is nn.Linear and lacks(m.weight) is None for m in maps)
    return maps if sure else None


def _pair(map: nn.Linear) -> Pair:
    return map.weight.detach(), None if map.bias is None else map.bias.detach()


def _joined(branch: Attention, laid: Laid) -> Pair:
    """q, k and v as one map, as the lean twin has joined them, without outputs that fill it up."""
    count = sum(m.out_features for m in (branch.q, branch.k, branch.v))
    return laid.weight[:count], None if laid.bias is None else laid.bias[:count]


def _norm(module: nn.Module) -> Norm:
    """A norm as the kernels read it."""
    if isinstance(module, RMSNorm):
        gain = module.weight.detach()
        return Norm("root", module.eps, 1 + gain.float() if module.offset else gain)
    assert isinstance(module, LayerNorm)
    shift = None if module.bias is None else module.bias.detach()
    return Norm("layer", module.eps, module.weight.detach(), shift)
