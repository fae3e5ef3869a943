"""Times of torch's fused kernels for one shape of attention, by the GPU's own clock."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends import cuda as kernels
from torch.nn.attention import sdpa_kernel

from anyformer.ops.fastest import DROPOUT, KERNELS, Found, Shape

ROUNDS, CALLS = 3, 3  # kernels take turns, some calls at a time; the best counts
LONG = 10.0  # ms: calls that take longer are timed once
AHEAD = 2_000_000  # cycles, 1 ms: in which the host starts what is then measured in one piece
ROOM = 2  # times what is needed by count must be free
TESTS = {
    "cudnn": kernels.can_use_cudnn_attention,
    "flash": kernels.can_use_flash_attention,
    "efficient": kernels.can_use_efficient_attention,
}


class Trial:
    """One attention of a shape, on tensors of its own."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        draw = torch.Generator(shape.device).manual_seed(0)
        self.q, self.k, self.v = (self._drawn(s, draw) for s in (shape.q, shape.k, shape.k))
        self.up = self._drawn(shape.q, draw).detach()
        self.mask = None
        if shape.mask is not None and shape.mask_type is not None:
            make = torch.ones if shape.mask_type == torch.bool else torch.zeros
            self.mask = make(shape.mask, dtype=shape.mask_type, device=shape.device)
        self.dropout = DROPOUT if shape.drops else 0.0
        self.shared = shape.q[1] != shape.k[1]

    def _drawn(self, size: tuple[int, ...], draw: torch.Generator) -> Tensor:
        """(B, H, N, D) that lies in memory as (B, N, H, D), as projections give it."""
        batch, heads, length, wide = size
        x = torch.empty(
            batch, length, heads, wide, dtype=self.shape.dtype, device=self.shape.device
        )
        return x.normal_(generator=draw).transpose(1, 2).requires_grad_(self.shape.learns)

    def takes(self) -> list[str]:
        """The kernels that say they can, and may."""
        asked = kernels.SDPAParams(
            self.q, self.k, self.v, self.mask, self.dropout, self.shape.causal, self.shared
        )
        return [name for name, test in TESTS.items() if test(asked)]

    def own(self) -> str:
        """The kernel that torch would take."""
        number = torch._fused_sdp_choice(  # pyright: ignore[reportPrivateImportUsage]
            self.q, self.k, self.v, self.mask, self.dropout, self.shape.causal,
            enable_gqa=self.shared,
        )  # fmt: skip
        return next((name for name, kernel in KERNELS.items() if kernel.value == number), "")

    def run(self) -> None:
        """Forward, and backward where gradients are wanted."""
        with torch.set_grad_enabled(self.shape.learns):
            out = F.scaled_dot_product_attention(
                self.q, self.k, self.v, self.mask, self.dropout, self.shape.causal,
                enable_gqa=self.shared,
            )  # fmt: skip
            if self.shape.learns:
                torch.autograd.grad(out, (self.q, self.k, self.v), self.up)


def measure(shape: Shape) -> Found:
    """Milliseconds of each kernel that takes the shape, or why there are none."""
    if needed(shape) * ROOM > free(shape.device):
        return Found(why="there is too little memory to measure it")
    try:
        with torch.cuda.device(shape.device):
            return _raced(Trial(shape))
    except torch.cuda.OutOfMemoryError:
        return Found(why="there is too little memory to measure it")


def _raced(trial: Trial) -> Found:
    """Kernels in turns."""
    own, names = trial.own(), trial.takes()  # own first: torch sets its order up when first asked
    if len(names) < 2:
        return Found(own, why=f"{names[0] if names else 'no fused kernel'} alone takes it")
    names = [name for name in names if _runs(trial, name)]
    times = {name: _timed(trial, name, 1) for name in names}
    for _ in range(ROUNDS if max(times.values(), default=LONG) < LONG else 0):
        for name in names:
            times[name] = min(times[name], _timed(trial, name, CALLS))
    return Found(own, times)


def _runs(trial: Trial, name: str) -> bool:
    """Whether a kernel that says it can really does; plans and libraries are made here."""
    try:
        with sdpa_kernel(KERNELS[name]):
            trial.run()
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError:
        return False
    return True


def _timed(trial: Trial, name: str, calls: int) -> float:
    """Milliseconds of a call."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with sdpa_kernel(KERNELS[name]):
        torch.cuda._sleep(AHEAD)
        first.record()
        for _ in range(calls):
            trial.run()
        last.record()
    last.synchronize()
    return first.elapsed_time(last) / calls


def needed(shape: Shape) -> int:
    """Bytes of the tensors of a shape, with all heads, and of gradients summed in 32 bits."""
    (batch, heads, queries, wide), keys = shape.q, shape.k[2]
    numbers = 2 * batch * heads * (queries + keys) * wide  # q, k, v and what comes out
    size = shape.dtype.itemsize
    return numbers * (2 * size + 4 if shape.learns else size)


def free(device: torch.device) -> int:
    """Bytes that a GPU has left, those included that torch keeps for later."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept
