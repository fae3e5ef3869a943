"""Whether this processor can do what it says: some virtual machines tell of AMX, and die of it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

LIMIT = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # without AMX, in the environment
TILES = "amx_tile"  # how a processor tells of it
PRODUCT = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"


def remedy(told: pathlib.Path = pathlib.Path("/proc/cpuinfo"), work: str = PRODUCT) -> str | None:
    """What must be set for products in bfloat16, as NAME=value; None where they work as it is.

    Tried in another process, since an illegal instruction ends the one that meets it.
    """
    if LIMIT[0] in os.environ or not told.is_file() or TILES not in told.read_text():
        return None
    ran = subprocess.run([sys.executable, "-c", work], capture_output=True)  # nosec B603 # our own
    return "=".join(LIMIT) if ran.returncode < 0 else None
