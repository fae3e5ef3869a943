"""A compiled block whose streams enter norms by a kernel of ours (ops/norm.py).

What a branch says is added where the next norm reads it, so that its gradient has both at hand. Of
the last branch of a block that is the next block's norm, where `hands` allows it: then a stream is
handed on as a pair, itself and what is to be added.
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
from anyformer.parts.twin import bare, heard, hooked
from anyformer.spec import Superblocks

if TYPE_CHECKING:
    from anyformer.model.stack import Stack, Sublayer

Stream = Tensor | tuple[Tensor, Tensor]  # (B, N, d), or with what is to be added to it
EXIT = {Attention: "out", FeedForward: "down"}  # the map that ends a branch


def whole(x: Stream) -> Tensor:
    """A stream with all that was said of it."""
    return x[0] + x[1] if isinstance(x, tuple) else x


def hands(stack: Stack, call: Call) -> bool:
    """Whether nothing but blocks and the last norm touches a stream, and all of that is asked."""
    spec, plain = stack.spec, call.hidden is None and call.asking is None
    dropped = stack.training and spec.layer_dropout > 0
    blank = call.keep is not None and spec.blank
    touched = dropped or blank or stack.convolution is not None
    once = not isinstance(spec.schedule, Superblocks)
    return stack.hands and plain and once and not touched and not any(map(hooked, stack.blocks))


def fits(sublayers: Iterable[nn.Module], x: Tensor, call: Call) -> bool:
    """Whether a block of these sublayers has the kernel for streams x (B, N, d).

    It is asked for, nothing is remembered from call to call, and every sublayer is plain.
    """
    if not fusing.asked("norm", x) or not takes(x):
        return False
    alone = call.past is None and call.following is None and call.source is None
    return alone and all(map(_plain, sublayers))


def run(sublayers: Iterable[Any], stream: Stream, call: Call, path: str) -> Stream:
    """The stream (B, N, d) after such sublayers."""
    listed, before = [*sublayers], None
    x, said = stream if isinstance(stream, tuple) else (stream, None)
    for j, sublayer in enumerate(listed):
        exit = _exit(sublayer)
        bias = None if exit is None else exit.bias
        behind = bias if j + 1 == len(listed) else None
        x, y = entered(x, said, _norm(sublayer.used[1]), Tails(before, behind))
        said = sublayer.said(y, _settled(sublayer, exit, call), f"{path}.{j}")
        before = bias
    if said is None or call.hands:
        return x if said is None else (x, said)
    return x + said


def last(norm: nn.Module, stream: tuple[Tensor, Tensor]) -> Tensor:
    """The last norm of a stream, in a product's type where the kernel is for it."""
    asked = fusing.asked("norm", stream[0]) and takes(stream[0]) and not heard(norm)
    if not asked or not isinstance(norm, LayerNorm | RMSNorm):
        return norm(whole(stream))
    return entered(*stream, _norm(norm), Tails())[1]


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
