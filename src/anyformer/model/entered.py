"""A compiled block whose streams enter norms by a kernel of ours (ops/norm.py).

What a branch says is added where the next norm reads it, so that its gradient has both at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor, nn

from anyformer.ops import fusing
from anyformer.ops.norm import Norm, Tails, entered, takes
from anyformer.parts.attention import Attention
from anyformer.parts.feedforward import FeedForward
from anyformer.parts.norm import LayerNorm, RMSNorm
from anyformer.parts.residual import Add
from anyformer.parts.state import Call
from anyformer.parts.twin import bare, heard

if TYPE_CHECKING:
    from anyformer.model.stack import Sublayer

EXIT = {Attention: "out", FeedForward: "down"}  # the map that ends a branch


def fits(sublayers: Iterable[nn.Module], x: Tensor, call: Call) -> bool:
    """Whether a block of these sublayers has the kernel for streams x (B, N, d).

    It is asked for, nothing is remembered from call to call, and every sublayer is plain.
    """
    if not fusing.asked("norm", x) or not takes(x):
        return False
    alone = call.past is None and call.following is None and call.source is None
    return alone and all(map(_plain, sublayers))


def run(sublayers: Iterable[Any], x: Tensor, call: Call, path: str) -> Tensor:
    """The stream (B, N, d) after such sublayers."""
    listed, said, before = [*sublayers], None, None
    for j, sublayer in enumerate(listed):
        exit = _exit(sublayer)
        bias = None if exit is None else exit.bias
        behind = bias if j + 1 == len(listed) else None
        x, y = entered(x, said, _norm(sublayer.used[1]), Tails(before, behind))
        said = sublayer.said(y, _settled(sublayer, exit, call), f"{path}.{j}")
        before = bias
    return x if said is None else x + said


def _plain(sublayer: Any) -> bool:
    """Whether a sublayer is a norm before an attention or a feed-forward, added as it is."""
    branch, norm, _, residual = sublayer.used
    if sublayer.place != "pre" or sublayer.optional or heard(sublayer):
        return False
    if type(norm) not in (LayerNorm, RMSNorm) or type(residual) is not Add:
        return False
    if heard(norm) or heard(residual) or (residual.skip, residual.branch) != (1.0, 1.0):
        return False
    placed = isinstance(branch, Attention) and branch.spec.infused is not None
    return type(branch) in EXIT and not placed  # its maps alone read the norm


def _exit(sublayer: Sublayer) -> nn.Linear | None:
    """The map that ends a branch, where its bias has the gradient of the stream as it is."""
    branch = sublayer.used[0]
    found = getattr(branch, EXIT[type(branch)])
    changed = isinstance(branch, Attention) and branch.spec.gate == "glu"
    own = sublayer.maps is not None or sublayer.lora is not None
    dropped = sublayer.dropout and sublayer.training
    return None if changed or own or dropped or not bare(found) or found.bias is None else found


def _settled(sublayer: Sublayer, exit: nn.Linear | None, call: Call) -> Call:
    """The call, in which the map that ends a branch leaves its bias's gradient to the stream."""
    if exit is None:
        return call
    bias = exit.bias.detach()
    maps: Any = {EXIT[type(sublayer.used[0])]: lambda y: F.linear(y, exit.weight, bias)}
    return replace(call, maps=maps)


def _norm(norm: LayerNorm | RMSNorm) -> Norm:
    """A norm as numbers."""
    if isinstance(norm, LayerNorm):
        return Norm(norm.weight, norm.bias, norm.eps, True)
    return Norm(1 + norm.weight if norm.offset else norm.weight, None, norm.eps, False)
