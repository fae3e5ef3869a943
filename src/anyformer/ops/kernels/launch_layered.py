"""From tensors to the kernels of sums over layers: forward at once, backward in strips of queries.

Letters: B batch, H heads, G key heads, Q queries, K keys, C channels of all layers, E value size,
R queries of a strip.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import Facts, Size, Work, power, start, view
from anyformer.ops.kernels.launch_strips import Piece, kept, pieces, size_of
from anyformer.ops.kernels.layered import forward as forward_kernel
from anyformer.ops.kernels.layered import slopes as slopes_kernel
from anyformer.ops.kernels.tile import Form

CHANNELS = 64  # of a block
TILES = {  # queries by keys, for values of 64 or fewer channels; wider ones have fewer keys
    "forward": Size(128, 128, 8, 3),
    "slopes": Size(128, 128, 8, 3),
}


@dataclass(frozen=True, eq=False)
class Layers:
    """One call: q (B, H, Q, C), k (B, G, K, C), v (B, G, K, E) and keys to keep."""

    q: Tensor
    k: Tensor
    v: Tensor
    keep: Tensor  # (B or 1, K - lead) int8; empty: all
    scale: float
    facts: Facts

    def size(self, kernel: str) -> Size:
        """The tiles of a kernel for this type and values so wide."""
        size, more = TILES[kernel], max(1, power(self.v.shape[-1]) // 64)
        if self.q.dtype == torch.float32:
            return Size(max(16, size.m // 2), max(16, size.n // (2 * more)), size.warps, 2)
        return Size(size.m, max(16, size.n // more), size.warps, size.stages if more == 1 else 2)

    def block(self) -> Work:
        """The call with the first block of channels alone, as the kernels of tiles know it."""
        wide = min(CHANNELS, power(self.q.shape[-1]))
        none = [self.q.new_empty(0, *shape) for shape in ((1,), (1, 1), (1, 1))]
        q, k = self.q[..., :wide], self.k[..., :wide]
        return Work(q, k, self.v, none, self.keep, self.scale, self.facts)

    def form(self, size: Size) -> Form:
        """What a kernel with such tiles is compiled for: nothing that depends on the layers."""
        form = self.block().form(size)
        return form._replace(D=form.BD, whole=self.q.shape[-1] % form.BD == 0)


def forward(work: Layers) -> tuple[Tensor, Tensor]:
    """out (B, H, Q, E) and the log-sum-exp of each row, (B, H, Q), in units of log 2."""
    q, block, size = work.q, work.block(), work.size("forward")
    batch, heads, queries, channels = q.shape
    site = block.site()._replace(channels=channels)
    out = q.new_empty(batch, queries, heads, work.v.shape[-1]).transpose(1, 2)
    lse = q.new_empty(batch, heads, queries, dtype=torch.float32)
    start(
        forward_kernel, (-(-queries // size.m), batch * heads), size,
        view(q), view(work.k), view(work.v), (view(out),), view(lse[..., None]),
        block.extra(), site, work.form(size), work.facts.lead > 0,
    )  # fmt: skip
    return out, lse


def backward(work: Layers, out: Tensor, lse: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q (B, H, Q, C), k (B, G, K, C) and v (B, G, K, E)."""
    q, k, v = work.q, work.k, work.v
    delta = (out.float() * grad.float()).sum(-1).contiguous()
    dq = torch.zeros_like(q)
    dk, dv = (torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (k, v))
    some = list(pieces(work))
    room = [q.new_empty(size_of(some)) for _ in range(2)]
    for piece in some:
        if piece.strip.keys:
            weights, ds = slopes(work, piece, (grad, lse[..., None], delta[..., None]), room)
            asks = (piece.rows, slice(None), piece.queries)
            reads = (piece.rows, slice(None), piece.keys)
            dq[asks] = (ds @ k[reads]).view_as(dq[asks])
            dk[reads] += ds.mT @ grouped(q[asks], k)
            dv[reads] += weights.mT @ grouped(grad[asks], v)
    return dq, dk.to(k.dtype), dv.to(v.dtype)


def slopes(
    work: Layers, piece: Piece, grads: tuple[Tensor, ...], room: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Weights and score gradients of a strip, with the queries that share keys in a row."""
    q = piece.of(work.q, piece.queries)
    k, v = piece.of(work.k, piece.keys), piece.of(work.v, piece.keys)
    batch, heads, count, _ = q.shape
    keys, size = piece.strip.keys, work.size("slopes")
    made = [piece.within(r) for r in room]
    start(
        slopes_kernel, (-(-count // size.m), -(-keys // size.n), batch * heads), size,
        view(q), view(k), view(v), tuple(view(piece.of(x, piece.queries)) for x in grads),
        tuple(map(view, made)), kept(work.keep, piece.rows), piece.strip, work.form(size),
    )  # fmt: skip
    weights, ds = (grouped(x, k)[..., :keys] for x in made)
    return weights, ds


def grouped(x: Tensor, like: Tensor) -> Tensor:
    """x (B, H, R, N) -> (B, G, H / G · R, N): queries whose heads share keys, in a row."""
    groups = like.shape[1]
    return x if x.shape[1] == groups else x.reshape(x.shape[0], groups, -1, x.shape[-1])
