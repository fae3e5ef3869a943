"""Where kernels of ours stand in compiled blocks, in place of what torch's compiler writes.

All of them share one switch, as they were measured together. A block that isn't compiled never has
them: outside of one the launches cost more than the bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.ops.tiles import INSTALLED, interpreted

DEVICES: tuple[str, ...] = ("cuda",)  # on which compiled blocks have them: measured as faster
KERNELS = ("gelu", "norm", "sides")  # those of ops/gelu.py, ops/norm.py and ops/sides.py


def asked(kernel: str, x: Tensor) -> bool:
    """Whether a kernel is wanted for x: in a compiled block, where Triton runs."""
    if not torch.compiler.is_compiling() or x.device.type not in DEVICES:
        return False
    return kernel in KERNELS and INSTALLED and (x.is_cuda or interpreted())
