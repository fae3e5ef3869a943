"""Biases by distance in two parts: a band around the diagonal, and what is far, by plain attention.

Beyond its ends a table is constant, so that all keys farther away are attended to by the library's
fused kernel without a bias; keys within the band by small blocks that have one. The parts are
merged by their log-sum-exp, and each goes backwards with the merged output and log-sum-exp, so that
nothing quadratic is kept. Softmax doesn't see what a whole row gains: the low end counts as 0.

Letters: B batch, H heads, N tokens, D head size, R rows of the table, S queries of a block,
P keys that a block sees, C blocks in a row, W distances on one side of the band.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from anyformer.ops.eager import widen
from anyformer.ops.mask import Causal, Padding, parts
from anyformer.ops.plan import Plan

BLOCK = 64  # queries of a block
SHORT = 512  # tokens up to which scores are best written out
ROW = 16  # blocks that are taken at once: their scores stay in a core's cache

Kinds = dict[tuple[int, int, int], Tensor]
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why this plan has no band here, or None."""
    if q.device.type != "cpu":
        return "is for CPUs, whose fused kernel it calls"
    terms, masks = plan.relative, parts(plan.mask)
    if terms is None or terms.bias is None or len(terms.tensors()) > 1:
        return "needs relative terms that are a bias alone"
    if plan.start or plan.lead or q.shape[2] != k.shape[2]:
        return "needs queries and keys that are the same tokens"
    if any(not isinstance(m, (Causal, Padding)) for m in masks):
        return "has no mask but a causal one"
    pads = [m for m in masks if isinstance(m, Padding)]
    if pads and not (all(m.right for m in pads) and len(pads) < len(masks)):
        return "takes padding only on the right, under a causal mask"
    if v.shape[-1] != q.shape[-1]:
        return "needs values as wide as q and k"
    return None


def pays(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> bool:
    """Whether the far part is long enough to be worth several calls."""
    terms = plan.relative
    if terms is None or q.shape[2] <= SHORT:
        return False
    return q.shape[2] >= 4 * max(-terms.low, BLOCK)


def band(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, N, D), k and v (B, G, N, D) -> (B, H, N, D)."""
    terms, masks, n = plan.relative, parts(plan.mask), q.shape[2]
    assert terms is not None and terms.bias is not None
    causal = any(isinstance(m, Causal) for m in masks)
    k, v = widen(k, q.shape[1]), widen(v, q.shape[1])
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    low = max(min(terms.low, -1), -n)
    high = 1 if causal else min(max(terms.high, 1), n)
    bias = terms.reach(low, high).bias
    assert bias is not None
    bias = bias.to(torch.promote_types(q.dtype, torch.float32))
    out: Tensor = _Band.apply(q, k, v, bias, Reach(-low, high, causal, plan.scale))  # type: ignore[assignment]
    for mask in masks:
        if isinstance(mask, Padding):  # a row of padding alone gives zeros
            out = out * mask.keep.any(-1)[:, None, None, None]
    return out


class Piece(NamedTuple):
    """Blocks alike, in a row: first query, queries of a block, blocks, first key, keys of one."""

    at: int
    size: int
    blocks: int
    first: int
    keys: int

    def away(self) -> Tensor:
        """The distances of a block, (S, P)."""
        first = self.first - self.at
        return torch.arange(first, first + self.keys) - torch.arange(self.size)[:, None]

    @property
    def kind(self) -> tuple[int, int, int]:
        """What is alike in pieces that have the same bias."""
        return self.size, self.first - self.at, self.keys


@dataclass(frozen=True)
class Reach:
    """Distances -back and +ahead are the first that are far; a causal band has none ahead."""

    back: int
    ahead: int
    causal: bool
    scale: float

    def pieces(self, n: int) -> Iterator[Piece]:
        """The band of n tokens."""
        at = 0
        while at < n:
            size = min(BLOCK, n - at)
            low, high = at - self.back + 1, at + size + self.ahead - 1
            whole = (n - self.ahead + 1 - at) // BLOCK if low >= 0 else 0  # blocks from here on
            if whole > 0:
                count = min(ROW, whole)
                yield Piece(at, BLOCK, count, low, BLOCK + self.back + self.ahead - 2)
                at += count * BLOCK
            else:
                yield Piece(at, size, 1, max(low, 0), min(high, n) - max(low, 0))
                at += size

    def rows(self, piece: Piece) -> Tensor:
        """The row of the table for each place of a block, (S, P)."""
        return piece.away().clamp_(-self.back, self.ahead).add_(self.back)

    def biases(self, low: Tensor, n: int) -> Kinds:
        """The bias of each kind of block, (H, S, P), of a table (H, R); far: -inf."""
        found: Kinds = {}
        for piece in self.pieces(n):
            if piece.kind not in found:
                away = piece.away()
                far = (away <= -self.back) | (away >= self.ahead)
                found[piece.kind] = low[:, self.rows(piece)].masked_fill_(far, float("-inf"))
        return found


class _Band(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, reach: Reach) -> Tensor:  # type: ignore[override]
        ctx.reach = reach
        low = bias - bias[:, :1]  # (H, R)
        found = run_forward([q, k, v, low], [reach.back, reach.ahead, reach.causal], reach.scale)
        ctx.save_for_backward(q, k, v, low, *found)
        return found[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        reach, grad = ctx.reach, grad if grad.stride(-1) == 1 else grad.contiguous()
        facts = [reach.back, reach.ahead, reach.causal]
        return (*run_backward([grad, *ctx.saved_tensors], facts, reach.scale), None)


# Opaque to torch.compile: overlapping blocks that are written to have no place in its graphs.
@torch.library.custom_op("anyformer::band_forward", mutates_args=())
def run_forward(given: list[Tensor], facts: list[int], scale: float) -> list[Tensor]:
    """q, k, v and the table -> output and log-sum-exp, and those of keys beyond the high end."""
    q, k, v, low = given
    reach = Reach(facts[0], facts[1], bool(facts[2]), scale)
    out, lse = _near(q, k, v, low, reach)
    w, a = reach.back, reach.ahead
    if q.shape[2] > w:
        far = flash(q[:, :, w:], k[:, :, :-w], v[:, :, :-w], 0.0, True, scale=scale)
        _merge(out[:, :, w:], lse[:, :, w:], *far)
    above: tuple[Tensor, ...] = ()
    if not reach.causal and q.shape[2] > a:
        above = _above(q, k, v, low[:, -1], reach)
        _merge(out[:, :, :-a], lse[:, :, :-a], *above)
    return [out.to(q.dtype), lse, *(x.contiguous() for x in above)]


@run_forward.register_fake
def _(given: list[Tensor], facts: list[int], scale: float) -> list[Tensor]:
    q, low = given[0], given[3]
    made = [torch.empty(q.shape, dtype=q.dtype), torch.empty(q.shape[:3], dtype=low.dtype)]
    if not facts[2] and q.shape[2] > facts[1]:
        rest = (*q.shape[:2], q.shape[2] - facts[1])
        made += [torch.empty(*rest, q.shape[3], dtype=q.dtype), torch.empty(rest, dtype=low.dtype)]
    return made


@torch.library.custom_op("anyformer::band_backward", mutates_args=())
def run_backward(given: list[Tensor], facts: list[int], scale: float) -> list[Tensor]:
    """The output's gradient, what went in and what came out -> those of q, k, v and the table."""
    grad, q, k, v, low, out, lse, *above = given
    reach = Reach(facts[0], facts[1], bool(facts[2]), scale)
    delta = (grad.to(lse.dtype) * out).sum(-1)  # (B, H, N)
    found = tuple(torch.zeros(x.shape, dtype=lse.dtype) for x in (q, k, v))
    biases = reach.biases(low, q.shape[2])
    sums = {kind: torch.zeros_like(bias) for kind, bias in biases.items()}
    for row in range(q.shape[0]):
        for h in range(q.shape[1]):
            one = lambda x, at=(row, h): x[at]
            pick = lambda x, h=h: {kind: t[h] for kind, t in x.items()}
            asked = tuple(map(one, (q, k, v, grad, lse, delta)))
            _near_backward(asked, tuple(map(one, found)), pick(biases), pick(sums), reach)
    dbias = _by_distance(sums, low, reach, q.shape[2])
    _far_backward((q, k, v, grad, out, lse), found, reach)
    if above:
        a = reach.ahead
        share = (above[1] - lse[:, :, :-a]).exp()
        drawn = (grad[:, :, :-a].to(lse.dtype) * above[0]).sum(-1) - delta[:, :, :-a]
        dbias[:, -1] += (share * drawn).sum((0, 2))
        _above_backward((q, k, v, grad, out, lse), found, low[:, -1], reach)
    dbias[:, 0] = -dbias[:, 1:].sum(1)  # what all scores of a row gain has no effect
    return [*(x.to(q.dtype) for x in found), dbias]


@run_backward.register_fake
def _(given: list[Tensor], facts: list[int], scale: float) -> list[Tensor]:
    return [*(torch.empty(x.shape, dtype=x.dtype) for x in given[1:4]), torch.empty_like(given[4])]


def _blocks(x: Tensor, first: int, size: int, count: int) -> Tensor:
    """Blocks of rows of x (…, N, D) that start BLOCK apart and may overlap, (…, C, size, D)."""
    x = x[..., first:, :]
    n, d = x.stride()[-2:]
    shape = (*x.shape[:-2], count, size, x.shape[-1])
    return x.as_strided(shape, (*x.stride()[:-2], BLOCK * n, n, d))


def _near(q: Tensor, k: Tensor, v: Tensor, low: Tensor, reach: Reach) -> tuple[Tensor, Tensor]:
    """The band's output (B, H, N, D) and log-sum-exp (B, H, N), in float32 at least."""
    out = torch.empty(q.shape, dtype=low.dtype)
    lse = torch.empty(q.shape[:3], dtype=low.dtype)
    biases = {kind: x[:, None].to(q.dtype) for kind, x in reach.biases(low, q.shape[2]).items()}
    for piece in reach.pieces(q.shape[2]):
        at, size, count, first, keys = piece
        for row in range(q.shape[0]):
            mine = _blocks(q[row], at, size, count)  # (H, C, S, D)
            theirs, values = (_blocks(x[row], first, keys, count) for x in (k, v))
            found, total = flash(
                mine, theirs, values, attn_mask=biases[piece.kind], scale=reach.scale
            )
            _blocks(out[row], at, size, count).copy_(found)
            lse[row, :, at : at + size * count] = total.flatten(1)
    return out, lse


def _merge(out: Tensor, lse: Tensor, other: Tensor, more: Tensor) -> None:
    """Add another part's output and log-sum-exp to those of one, in place."""
    total = torch.logaddexp(lse, more)
    out.mul_((lse - total).exp_()[..., None])
    out.addcmul_(other.to(out.dtype), (more - total).exp_()[..., None])
    lse.copy_(total)


def _above(q: Tensor, k: Tensor, v: Tensor, gain: Tensor, reach: Reach) -> tuple[Tensor, Tensor]:
    """Keys beyond the high end, for queries that have some: read backwards they are causal."""
    a = reach.ahead
    turned = q[:, :, :-a].flip(2), k[:, :, a:].flip(2), v[:, :, a:].flip(2)
    out, lse = flash(*turned, 0.0, True, scale=reach.scale)
    return out.flip(2), lse.flip(2) + gain[:, None]


def _far_backward(given: tuple[Tensor, ...], found: tuple[Tensor, ...], reach: Reach) -> None:
    """Add what keys beyond the low end give."""
    q, k, v, grad, out, lse = given
    w = reach.back
    if q.shape[2] <= w:
        return
    late, early = (slice(None), slice(None), slice(w, None)), (slice(None), slice(None), slice(-w))
    given = grad[late], q[late], k[early], v[early], out[late]
    more = _backward(given, lse[late], reach.scale)
    for x, at, part in zip(found, (late, early, early), more, strict=True):
        x[at] += part


def _above_backward(
    given: tuple[Tensor, ...], found: tuple[Tensor, ...], gain: Tensor, reach: Reach
) -> None:
    """Add what keys beyond the high end give."""
    q, k, v, grad, out, lse = given
    a = reach.ahead
    early = lambda x: x[:, :, :-a].flip(2)
    late = lambda x: x[:, :, a:].flip(2)
    total = early(lse) - gain[:, None]
    given = early(grad), early(q), late(k), late(v), early(out)
    more = _backward(given, total, reach.scale)
    for x, at, part in zip(found, (slice(-a), slice(a, None), slice(a, None)), more, strict=True):
        x[:, :, at] += part.flip(2)


def _backward(given: Iterable[Tensor], lse: Tensor, scale: float) -> tuple[Tensor, ...]:
    """The fused kernel's gradients; it wants the log-sum-exp by tokens first."""
    lse = lse.transpose(1, 2).contiguous().transpose(1, 2)
    return flash_backward(*given, lse, 0.0, True, scale=scale)


def _near_backward(
    given: tuple[Tensor, ...], found: tuple[Tensor, ...], biases: Kinds, sums: Kinds, reach: Reach
) -> None:
    """Add the band's gradients of one head: given (N, D) and (N,), biases and sums (S, P)."""
    q, k, v, grad, lse, delta = given
    dq, dk, dv = found
    for piece in reach.pieces(q.shape[0]):
        at, size, count, first, keys = piece
        rows = slice(at, at + size * count)
        wide = lambda x, a, s, c=count: _blocks(x, a, s, c).to(lse.dtype)
        mine, asked = wide(q, at, size), wide(grad, at, size)  # (C, S, D)
        theirs, values = wide(k, first, keys), wide(v, first, keys)  # (C, P, D)
        p = torch.baddbmm(biases[piece.kind], mine, theirs.mT, alpha=reach.scale)  # (C, S, P)
        p.sub_(lse[rows].view(count, size, 1)).exp_()
        ds = torch.bmm(asked, values.mT).sub_(delta[rows].view(count, size, 1)).mul_(p)
        dq[rows] += torch.bmm(ds, theirs).flatten(0, 1).mul_(reach.scale)
        _overlay(dk, torch.bmm(ds.mT, mine).mul_(reach.scale), first)
        _overlay(dv, torch.bmm(p.mT, asked), first)
        sums[piece.kind] += ds.sum(0)


def _by_distance(sums: Kinds, low: Tensor, reach: Reach, n: int) -> Tensor:
    """The gradient of the table (H, R) from those of the blocks."""
    total, done = torch.zeros_like(low), set[tuple[int, int, int]]()
    for piece in reach.pieces(n):
        if piece.kind not in done:
            done.add(piece.kind)
            total.index_add_(1, reach.rows(piece).flatten(), sums[piece.kind].flatten(1))
    return total


def _overlay(total: Tensor, blocks: Tensor, first: int) -> None:
    """Add blocks (C, P, D) that start BLOCK apart to the rows of total (N, D), from first on."""
    count, keys = blocks.shape[:2]
    for at in range(0, keys, BLOCK):
        part = blocks[:, at : at + BLOCK]
        _blocks(total, first + at, part.shape[1], count).add_(part)
