"""From tensors to the kernels in CUDA C++ for vectors of queries: onepass.cu and onward.cu.

The first makes all gradients in one pass. It adds those of keys and values in float32, as products
leave them in threads: they take their turn in so much room, and a second kernel settles them in 16
bits. The second makes the output; until a GPU has timed it, only where ONWARD says so.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import Work, tiles
from anyformer.ops.kernels.native import Native, Value, lacks
from anyformer.ops.kernels.tile import View

SIZE = 64  # channels of a head; keys of a tile
ROWS, THREADS = 128, 256  # of a program: queries, threads
SHARED = 26 * 8192 + 5 * 256 + 512 + 4096  # bytes: tiles, biases of rows, ones, sums of biases
ONWARD = False  # whether onward.cu makes the output
ON_ROWS, ON_THREADS, ON_SHARED = 192, 384, 18 * 8192 + 4 * 256  # as above
ROOM = 96 << 20  # bytes of gradients of keys and values that are summed at once
SPREAD = 1  # heads whose programs run side by side
AT_ONCE = 0  # 1: sums of a bias don't wait for those of other blocks
MOST = 2**31 - 1


class Made(NamedTuple):
    """Where gradients go: of q, k and v; sums by row of the bias and of the table, in shares."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor
    query: Tensor


def fits(work: Work, *others: Tensor) -> bool:
    """Whether the kernels can do this work: queries' vectors for all keys that a query sees.

    others: what they read or write beside, which lies as queries do.
    """
    q, k, v, f = work.q, work.k, work.v, work.facts
    _, query, key = work.tables
    if not q.numel() or not query.numel() or key.numel() or lacks():
        return False
    if {q.shape[-1], v.shape[-1], query.shape[-1]} != {SIZE}:
        return False
    if not f.causal or any((f.width, f.left, f.right, f.lead)):
        return False
    if work.keep.numel() or work.other or work.back is not None:
        return False
    if f.start < 0 or f.start + q.shape[2] > k.shape[2]:
        return False
    return all(map(_reads, (q, k, v, *others)))


def _reads(x: Tensor) -> bool:
    """Whether rows begin where 16 bytes do, and are counted in 32 bits."""
    strides = x.stride()[:3]
    return x.data_ptr() % 16 == 0 and all(n % 8 == 0 and n <= MOST for n in strides)


def forward(work: Work, out: Tensor, lse: Tensor, tables: tuple[View, View], pad: int) -> None:
    """Fill the output and its log-sum-exp; tables: bias and vectors, longer by pad at both ends."""
    q = work.q
    _native("onward.cu", work).launch(
        "onward", (tiles(q.shape[2], ON_ROWS), q.shape[0] * q.shape[1], 1), ON_THREADS, ON_SHARED,
        *_placed(q), *_placed(work.k), *_placed(work.v), *_tables(tables), *_placed(out), lse,
        *_numbers(work, tables, pad), work.scale,
    )  # fmt: skip


def gradients(
    work: Work,
    given: tuple[Tensor, Tensor, Tensor],
    made: Made,
    tables: tuple[View, View],
    pad: int,
) -> None:
    """All of them; given: grad, out and lse; tables: as forward. Sums as of shelved_queries."""
    q, k = work.q, work.k
    grad, out, lse = given
    native, group = _native("onepass.cu", work), q.shape[1] // k.shape[1]
    steps, pairs = tiles(k.shape[2], SIZE), k.shape[0] * k.shape[1]
    each = 2 * steps * SIZE * SIZE
    count = min(pairs, max(1, ROOM // (4 * each)))
    sums = torch.empty(count * each, dtype=torch.float32, device=q.device)
    for first in range(0, pairs, count):
        some = min(count, pairs - first)
        sums.zero_()
        native.launch(
            "onepass", (tiles(q.shape[2], ROWS), some * group, 1), THREADS, SHARED,
            *_placed(q), *_placed(k), *_placed(work.v), *_placed(grad), *_placed(out), lse,
            *_tables(tables), *_placed(made.q), sums, made.query, made.bias,
            *_numbers(work, tables, pad), made.query.shape[2], len(made.query), first * group,
            SPREAD, work.scale,
        )  # fmt: skip
        native.launch(
            "settled", (steps, some, 1), THREADS, 0,
            sums, *_placed(made.k), *_placed(made.v), k.shape[2], k.shape[1], first, work.scale,
        )  # fmt: skip


def _native(source: str, work: Work) -> Native:
    """A source for this work's type, with a bias or without."""
    float16, bias = work.q.dtype == torch.float16, work.tables[0].numel() > 0
    macros = {"FLOAT16": float16, "BIAS": bias, "AT_ONCE": AT_ONCE}
    return Native(source, tuple(f"{name}={int(x)}" for name, x in macros.items()))


def _tables(tables: tuple[View, View]) -> tuple[Value, ...]:
    """Vectors and bias, with numbers to the next head's."""
    bias, query = tables
    return query.at, query.h, bias.at, bias.h


def _numbers(work: Work, tables: tuple[View, View], pad: int) -> tuple[int, ...]:
    """What kernels count by; last the row behind that of the first query and the first key."""
    q, k, f = work.q, work.k, work.facts
    group, rows = q.shape[1] // k.shape[1], tables[1].at.shape[1]
    return q.shape[2], k.shape[2], f.start, q.shape[1], group, rows, 1 - f.start - f.low + pad


def _placed(x: Tensor) -> tuple[Value, ...]:
    """A tensor (B, H, N, D) as the kernels have it."""
    return (x, *x.stride()[:3])
