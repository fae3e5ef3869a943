"""The cross-entropy of a linear map's outputs, which are never all there at once.

A vocabulary of 50,000 and 32,768 tokens are 1.6 billion logits, which are read for one number. So
some rows at a time are mapped, compared with their labels, and turned into their own gradient,
p - y, from which the gradients of inputs and weights follow at once. What is kept for the backward
pass are those, and a chunk's logits make room for the next one's.
Letters: T tokens, V vocabulary, d width.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer.ops.tiles import INSTALLED, TYPES, interpreted

IGNORED = -100  # a label that nothing is asked at
NUMBERS = {"cpu": 1 << 25, "cuda": 1 << 28}  # logits of a chunk at least, if there are so many
SHARE = 64  # of a GPU's bytes are logits of a chunk: in 16 bits 1 / 32 of its memory
FEWEST, STEP = 64, 256  # rows of a chunk at least, and what more of them are a multiple of
EVEN = {"cpu": 1, "cuda": 64}  # words are filled up to a multiple of it, as products like them


class Map(NamedTuple):
    """A map to logits: weight (V, d), bias (V,), and what bounds them."""

    weight: Tensor
    bias: Tensor | None = None
    cap: float | None = None


def takes(x: Tensor) -> bool:
    """Whether chunks are right for x: not in float16.

    Gradients are made before a loss is scaled, and would be too small for it.
    """
    return computed_in(x) != torch.float16


def computed_in(x: Tensor) -> torch.dtype:
    """What products with x are computed in."""
    here = x.device.type
    return torch.get_autocast_dtype(here) if torch.is_autocast_enabled(here) else x.dtype


def entropy_sum(x: Tensor, map: Map, labels: Tensor) -> tuple[Tensor, Tensor]:
    """x (T, d), labels (T,) -> the sum of losses, and how often the likeliest is the label."""
    dtype = computed_in(x)
    learns = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (x, map.weight, map.bias)
    )
    with torch.autocast(x.device.type, enabled=False):
        return _Sum.apply(x, map.weight, map.bias, map.cap, labels, (dtype, learns))  # type: ignore[return-value]


def fused(logits: Tensor) -> bool:
    """Whether a kernel of ours compares logits: where Triton runs."""
    return INSTALLED and logits.dtype in TYPES and (logits.is_cuda or interpreted())


class _Sum(torch.autograd.Function):
    """Losses forwards, with all gradients, which a number multiplies backwards."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        cap: float | None,
        labels: Tensor,
        how: tuple[torch.dtype, bool],
    ) -> tuple[Tensor, Tensor]:
        dtype, learns = how
        work = _Work(x.to(dtype), Map(weight, bias, cap), labels, learns)
        ctx.types = [None if t is None else t.dtype for t in (x, weight, bias)]
        ctx.save_for_backward(*work.grads)
        ctx.mark_non_differentiable(work.hits)
        return work.loss, work.hits

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grads = zip(ctx.saved_tensors, ctx.types, strict=True)
        like = lambda g, t: torch.empty_like(g, dtype=t)
        scaled = [None if t is None else torch.mul(g, above[0], out=like(g, t)) for g, t in grads]
        return (*scaled, None, None, None)


class _Work:
    """One pass over all chunks."""

    def __init__(self, x: Tensor, map: Map, labels: Tensor, learns: bool):
        even = EVEN.get(x.device.type, 1)
        self.words = len(map.weight)
        self.map = _filled(map, -self.words % even, x.dtype)
        map, wide = self.map, torch.promote_types(x.dtype, torch.float32)
        self.told: list[tuple[Tensor, Tensor]] = []
        self.dx = torch.empty_like(x) if learns else x.new_empty(0)
        begun = torch.empty_like if len(x) else torch.zeros_like  # the first chunk writes all of it
        self.dw = begun(map.weight, dtype=wide) if learns else x.new_empty(0)
        self.db = x.new_zeros(len(map.weight) if learns else 0, dtype=wide)
        rows = _rows(len(x), len(map.weight), x.device.type, _room(x.device))
        for at in range(0, len(x), rows):
            self._chunk(x[at : at + rows], labels[at : at + rows], at if learns else None)
        self.loss, self.hits = self._sums(x.new_empty(0, dtype=wide), labels[:0])

    def _sums(self, *none: Tensor) -> list[Tensor]:
        """The loss and the hits of all rows; `none`: those of no row."""
        parts = zip(none, *self.told, strict=True)
        return [torch.cat(part).sum() for part in parts]

    @property
    def grads(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of x, weight and bias."""
        return self.dx, self.dw[: self.words], self.db[: self.words]

    def _chunk(self, x: Tensor, labels: Tensor, at: int | None) -> None:
        """Add what some rows say; `at`: where their gradients belong."""
        logits = F.linear(x, self.map.weight, self.map.bias)
        compare = _fused if fused(logits) else _compared
        how = self.words, self.map.cap, at is not None
        loss, hits, slope = compare(logits, labels, *how)
        self.told.append((loss, hits))
        if at is None:
            return
        assert slope is not None
        torch.mm(slope, self.map.weight, out=self.dx[at : at + len(x)])
        _add_product(self.dw, slope.T, x, 1 if at else 0)
        if self.map.bias is not None:
            self.db += slope.sum(0, dtype=self.db.dtype)


@functools.cache
def _room(device: torch.device) -> int:
    """Logits for which a device has room: each chunk reads and writes the table's gradient."""
    if device.type != "cuda":
        return 0
    return torch.cuda.get_device_properties(device).total_memory // SHARE


def _rows(tokens: int, words: int, kind: str, room: int = 0) -> int:
    """Rows of a chunk: as many as its logits may be, alike in all chunks but for the last."""
    most = max(FEWEST, max(NUMBERS.get(kind, NUMBERS["cpu"]), room) // words)
    tokens = max(tokens, 1)
    chunks = -(-tokens // most)
    each = -(-tokens // chunks)
    return min(most, each + -each % STEP)


@functools.cache
def _adds_wide(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch's products of a type add to float32 there, as they do from some version on."""
    a, total = torch.ones(16, 16, device=device, dtype=dtype), torch.ones(16, 16, device=device)
    try:
        torch.addmm(total, a, a, out_dtype=torch.float32, out=total)
    except (RuntimeError, TypeError):
        return False
    return bool((total == 17).all())


def _add_product(total: Tensor, a: Tensor, b: Tensor, beta: int) -> None:
    """total = beta · total + a @ b, which it may be wider than; what 0 multiplies is never read.

    A GPU's product adds to it by itself.
    """
    if total.dtype == b.dtype:
        total.addmm_(a, b, beta=beta)
    elif total.is_cuda and _adds_wide(total.device, b.dtype):
        torch.addmm(total, a, b, out_dtype=total.dtype, beta=beta, out=total)
    elif beta:
        total += a @ b
    else:
        total.copy_(a @ b)


Compared = tuple[Tensor, Tensor, Tensor | None]  # losses, hits, and the gradient of logits


def _compared(
    logits: Tensor, labels: Tensor, words: int, cap: float | None, learns: bool
) -> Compared:
    """Logits (T, V and what fills it up) with labels (T,), by torch's own operations."""
    fill, logits = logits.shape[1] - words, logits[:, :words]
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    wide = wide if cap is None else torch.tanh(wide / cap) * cap
    real, asked = labels != IGNORED, labels.clamp(min=0)[:, None]
    found = wide.gather(1, asked)
    top, best = wide.max(-1, keepdim=True)
    shares = (wide - top).exp_() if cap is not None else wide.sub_(top).exp_()
    total = shares.sum(-1, keepdim=True)
    loss = torch.where(real, (total.log() + top - found)[:, 0], 0.0)
    hits = (best[:, 0] == labels).to(labels.dtype)  # IGNORED is no place
    if not learns:
        return loss, hits, None
    slope = shares.mul_(real[:, None] / total)
    slope.scatter_add_(1, asked, -real[:, None].to(slope.dtype))
    if cap is not None:
        slope.mul_(1 - (wide / cap).square())
    return loss, hits, F.pad(slope.to(logits.dtype), (0, fill))


def _fused(logits: Tensor, labels: Tensor, words: int, cap: float | None, learns: bool) -> Compared:
    """The same by one kernel, which writes the gradient over the logits."""
    from anyformer.ops.kernels import launch_entropy  # Triton is no dependency

    loss, hits = launch_entropy.run(logits, labels, words, cap, learns)
    return loss, hits, logits if learns else None


def _filled(map: Map, more: int, dtype: torch.dtype) -> Map:
    """A map in a type, with outputs that nobody asks for, so that there is an even number."""
    bias = None if map.bias is None else F.pad(map.bias.to(dtype), (0, more))
    if not more:
        return Map(map.weight.to(dtype), bias, map.cap)
    words, width = map.weight.shape
    weight = map.weight.new_empty(words + more, width, dtype=dtype)
    weight[:words].copy_(map.weight)  # cast on the way
    weight[words:].zero_()
    return Map(weight, bias, map.cap)
