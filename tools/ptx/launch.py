"""Triton's launches on the emulator: kernels are compiled for a GPU and run here."""

from __future__ import annotations

import itertools
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

from torch import Tensor

from tools.ptx import arithmetic, moves, products
from tools.ptx.machine import WARP, Machine, Size
from tools.ptx.memory import Global
from tools.ptx.read import Kernel, read

FORMS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "f32": "f", "f64": "d"}
EMULATED = "ANYFORMER_EMULATED"  # is 1 while kernels run here
INSTRUCTIONS = arithmetic, moves, products  # which list theirs when they are imported


class Driver:
    """Stands for a GPU of capability 9.0, which kernels are compiled for."""

    def get_current_target(self) -> Any:
        """What to compile for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, WARP)

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def get_current_stream(self, _device: int) -> int:
        """The only one."""
        return 0


def run(text: str, size: Size, values: list[Any], shared: int) -> Counter[str]:
    """Run a kernel's programs; how often each instruction was taken."""
    kernel = read(text)
    tensors = [x for x in values if isinstance(x, Tensor)]
    machine = Machine(kernel, size, _packed(kernel, values), shared, Global(tensors))
    for z, y, x in itertools.product(*map(range, reversed(size.grid))):
        machine.run((x, y, z))
    return machine.counts


def _packed(kernel: Kernel, values: list[Any]) -> dict[str, bytes]:
    """By parameter what it holds; the last two are Triton's own scratch, of which there is none."""
    given = [x.data_ptr() if isinstance(x, Tensor) else x for x in values]
    given += [0] * (len(kernel.parameters) - len(given))
    return {
        name: struct.pack(FORMS[kind], value % (1 << int(kind[1:])) if kind[0] == "u" else value)
        for (kind, name), value in zip(kernel.parameters, given, strict=True)
    }


def flat(values: Any, signature: Any) -> list[Any]:
    """What a kernel is given of its arguments, those that are compiled in left out."""
    if isinstance(signature, tuple | list):
        return [x for v, s in zip(values, signature, strict=True) for x in flat(v, s)]
    return [] if signature == "constexpr" else [values]


@contextmanager
def emulated(told: Callable[[str, Counter[str]], None] | None = None) -> Iterator[None]:
    """Within it Triton's kernels run on the emulator, on tensors of the CPU.

    told: is called after each launch, with the kernel's name and its counts of instructions.
    """
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver

    from anyformer.ops import tiles

    if os.environ.get("TRITON_INTERPRET") == "1":
        raise RuntimeError("TRITON_INTERPRET=0 is needed: the emulator runs what is compiled")

    def prepared(self: Any) -> None:
        if self.module is None:
            self.module, self.function = self, 0
            self._run = _launcher(self, told)

    driver.set_active(cast(Any, Driver()))  # which has what launches ask for, and no more
    with (
        patch.dict(os.environ, {EMULATED: "1"}),
        patch.object(CompiledKernel, "_init_handles", prepared),
        patch.object(tiles, "interpreted", lambda: True),
    ):
        yield


def _launcher(made: Any, told: Callable[[str, Counter[str]], None] | None) -> Callable[..., None]:
    facts, signature = made.metadata, list(made.src.signature.values())

    def launch(x: int, y: int, z: int, *rest: Any) -> None:
        size = Size((x, y, z), facts.num_warps * WARP)
        arguments = flat(rest[-len(signature) :], signature)
        counts = run(made.asm["ptx"], size, arguments, facts.shared)
        if told:
            told(made.name, counts)

    return launch
