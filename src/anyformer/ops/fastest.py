"""Torch's fused attention on a GPU by the kernel that is fastest for the shape.

Torch has several (cuDNN's, flash, memory-efficient) and one order for all shapes. Here each shape
is measured once, on tensors of its own, and what was found is remembered as long as the process
lives. Where nothing may be measured, torch's own order holds.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

WORTH = 1 << 24  # scores: with 64 channels 4 GFLOP forward, 10 µs on an H200, as long as a launch
MOST = 64  # shapes of a process: each takes some 0.1 s, most of it cuDNN's plans
MARGIN = 1.05  # nearer than that, torch's own stays: less depends on a clock
DROPOUT = 0.1  # what is measured for all that drop something

KERNELS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


class Shape(NamedTuple):
    """What decides how long a fused attention takes."""

    q: tuple[int, ...]  # (B, H, Q, D)
    k: tuple[int, ...]  # (B, G, K, D), as the values are
    mask: tuple[int, ...] | None
    mask_type: torch.dtype | None
    causal: bool
    drops: bool
    learns: bool  # whether gradients are wanted
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class Found:
    """Kernels in the order of their milliseconds, and which torch would have taken."""

    own: str = ""
    times: dict[str, float] = field(default_factory=dict)
    why: str = ""  # nothing was measured

    @property
    def order(self) -> str:
        """Names of kernels, the fastest first; empty where torch's own order is as good."""
        names = sorted(self.times, key=lambda name: self.times[name])
        if len(names) < 2 or self.times[names[0]] * MARGIN > self.times.get(self.own, float("inf")):
            return ""
        return " ".join([*names, *(name for name in KERNELS if name not in names)])


Measure = Callable[[Shape], Found]
_found: dict[tuple[Shape, tuple[bool, ...]], Found] = {}


def fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """q (B, H, Q, D), k and v (B, G, K, D) -> (B, H, Q, D), by the kernel found fastest."""
    order = _order(q, k, v, mask, dropout, causal)
    if not order:
        return _run(q, k, v, mask, dropout, causal, scale)
    with sdpa_kernel(_kernels(order), set_priority=True):  # those that refuse leave it to the next
        return _run(q, k, v, mask, dropout, causal, scale)


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
) -> Tensor:
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=causal,
        scale=scale,
        enable_gqa=k.shape[1] != q.shape[1],
    )


def _order(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool
) -> str:
    """The kernels for these tensors; empty: as torch would."""
    if not (measured_on(q.device) and _plain(q, mask) and _fixed(q, k)):
        return ""
    if q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] < WORTH:
        return ""
    here = q.device.type
    cast = torch.is_autocast_enabled(here) and q.dtype != torch.float64
    return _constant(
        tuple(q.shape),
        tuple(k.shape),
        None if mask is None else tuple(mask.shape),
        None if mask is None else mask.dtype,
        causal,
        dropout > 0,
        torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad),
        torch.get_autocast_dtype(here) if cast else q.dtype,
        q.device,
    )


def measured_on(device: torch.device) -> bool:
    """Whether there is more than one kernel to choose from."""
    return device.type == "cuda"


def _plain(q: Tensor, mask: Tensor | None) -> bool:
    """Whether these are tensors and nothing like them, as a causal bias that has a type is."""
    return type(q) is Tensor and (mask is None or type(mask) is Tensor)


def _fixed(q: Tensor, k: Tensor) -> bool:
    """Whether sizes are numbers: in a graph for all lengths they aren't."""
    if not torch.compiler.is_compiling():
        return True
    from torch.fx.experimental.symbolic_shapes import has_static_value  # loaded by the compiler

    return all(has_static_value(size) for size in (*q.shape, *k.shape))


def _constant(*shape: Any) -> str:
    """What is decided for a shape: while compiling, asked once, and a constant of the graph."""
    return decide(Shape(*shape))


# As torch.compiler.assume_constant_result does, which would load the compiler with this file.
_constant._dynamo_marked_constant = True  # type: ignore[attr-defined]


def decide(shape: Shape) -> str:
    """Names of kernels, the first to be tried first, or nothing: as torch would."""
    if torch.are_deterministic_algorithms_enabled():  # a clock decides nothing there
        return ""
    key = shape, allowed()
    if key not in _found:
        if len(_found) >= MOST or not undisturbed():
            return ""
        _found[key] = measured(shape)
    return " ".join(name for name in _found[key].order.split() if name in _usable(key[1]))


def allowed() -> tuple[bool, ...]:
    """Which of the kernels torch may take now, in the order of KERNELS."""
    kernels = torch.backends.cuda
    return (
        kernels.cudnn_sdp_enabled(),
        kernels.flash_sdp_enabled(),
        kernels.mem_efficient_sdp_enabled(),
        kernels.math_sdp_enabled(),
    )


def _usable(flags: tuple[bool, ...]) -> list[str]:
    return [name for name, on in zip(KERNELS, flags, strict=True) if on]


def _kernels(order: str) -> list[SDPBackend]:
    return [KERNELS[name] for name in order.split()]


def undisturbed() -> bool:
    """Whether work may be waited for here: not in a graph's capture, nor in a backward pass.

    What is measured has a backward pass of its own, which the thread of this one would have to run.
    """
    if torch._C._current_graph_task_id() != -1:
        return False
    return not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def measured(shape: Shape) -> Found:
    """Time the kernels of a shape, apart from all that the caller is about.

    A thread of its own has no autocast, no gradient mode, no tracing and no other mode of the
    caller's; the random state is as before afterwards.
    """
    there = shape.device.type == "cuda"
    stream = torch.cuda.current_stream(shape.device) if there else None

    def work() -> Found:
        devices = [shape.device] if there else []
        with torch.cuda.stream(stream), torch.random.fork_rng(devices):
            return measure(shape)

    with ThreadPoolExecutor(1) as apart:
        return apart.submit(work).result()


def measure(shape: Shape) -> Found:
    """Milliseconds of each kernel that takes the shape, forward and, if it learns, backward."""
    from anyformer.ops import stopwatch  # once in a process, on a GPU

    return stopwatch.measure(shape)
