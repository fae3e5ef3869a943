"""Room for shelves: a GPU gives a kernel more than 48 KiB of shared memory only where it is asked.

Triton asks by what it knows of, which a shelf isn't. So it is asked again when a kernel is loaded.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from anyformer.ops.kernels.native import DYNAMIC, STATIC, checked, driver

NAMES = ("shelved", "shelved_queries", "shelved_keys")  # kernels that may have a shelf
UNASKED, ASKED = 48 << 10, 64 << 10


def widen(*loaded: Any, **_: Any) -> None:
    """Let a kernel that has a shelf be given as much as one without; loaded: as Triton tells."""
    _, function, name = loaded[:3]
    number, kernel = ctypes.c_int(), ctypes.c_void_p(function)

    def get(attribute: int) -> int:
        checked(driver().cuFuncGetAttribute(ctypes.byref(number), attribute, kernel), name)
        return number.value

    if name in NAMES and get(STATIC) and get(DYNAMIC) <= UNASKED:
        checked(driver().cuFuncSetAttribute(kernel, DYNAMIC, ASKED), name)


@functools.cache
def prepare() -> None:
    """From now on kernels are asked for when they are loaded."""
    from triton import knobs

    knobs.runtime.kernel_load_end_hook.add(widen)
