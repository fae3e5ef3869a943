"""Launches on the emulator, of Triton and of CUDA C++: what is compiled for a GPU runs here."""

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

from tools.ptx import arithmetic, bits, moves, products
from tools.ptx.faults import KernelError
from tools.ptx.machine import WARP, Machine, Size
from tools.ptx.memory import Global
from tools.ptx.read import Kernel, read

MOST = 227 << 10  # bytes of shared memory that a program may have
GIVEN = {"u64": Tensor, "u32": int, "f32": float}  # parameters of kernels in CUDA C++
FORMS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "f32": "f", "f64": "d"}
ARCHITECTURE = "compute_90a"
EMULATED = "ANYFORMER_EMULATED"  # is 1 while kernels run here
SCRATCH = 0, 0  # what Triton's kernels get behind their arguments: memory that none asks for
INSTRUCTIONS = arithmetic, bits, moves, products  # which list theirs when they are imported


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


def run(text: str, size: Size, values: list[Any], shared: int, name: str = "") -> Counter[str]:
    """Run the programs of the kernel of a name, or of the first; how often it took instructions."""
    return _run(read(text, name), size, values, shared)


def _run(kernel: Kernel, size: Size, values: list[Any], shared: int) -> Counter[str]:
    tensors = [x for x in values if isinstance(x, Tensor)]
    machine = Machine(kernel, size, _packed(kernel, values), shared, Global(tensors))
    for z, y, x in itertools.product(*map(range, reversed(size.grid))):
        machine.run((x, y, z))
    return machine.counts


def _packed(kernel: Kernel, values: list[Any]) -> dict[str, bytes]:
    """By parameter what it holds."""
    given = [x.data_ptr() if isinstance(x, Tensor) else x for x in values]
    if len(given) != len(kernel.parameters):
        raise ValueError(f"{kernel.name} has {len(kernel.parameters)} parameters, not {len(given)}")
    return {
        name: struct.pack(FORMS[kind], value % (1 << int(kind[1:])) if kind[0] == "u" else value)
        for (kind, name), value in zip(kernel.parameters, given, strict=True)
    }


def _allowed(kernel: Kernel, threads: int, shared: int, values: Any) -> None:
    """What a GPU takes of a launch, and reads as something else."""
    if threads > kernel.threads:
        raise KernelError(f"{kernel.name} is for {kernel.threads} threads, not {threads}")
    if kernel.own + shared > MOST:
        raise KernelError(f"{kernel.name}: {kernel.own + shared} bytes of shared memory of {MOST}")
    for (kind, name), value in zip(kernel.parameters, values, strict=False):
        if not isinstance(value, GIVEN.get(kind, ())):
            raise KernelError(f"{name} is .{kind}, and the launch gives {value!r}")


def flat(values: Any, signature: Any) -> list[Any]:
    """What a kernel is given of its arguments, those that are compiled in left out."""
    if isinstance(signature, tuple | list):
        return [x for v, s in zip(values, signature, strict=True) for x in flat(v, s)]
    return [] if signature == "constexpr" else [values]


@contextmanager
def emulated(told: Callable[[str, Counter[str]], None] | None = None) -> Iterator[None]:
    """Within it Triton's kernels, and those in CUDA C++, run on the emulator, on the CPU's tensors.

    told: is called after each launch, with the kernel's name and its counts of instructions.
    """
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver

    from anyformer.ops import tiles
    from anyformer.ops.kernels import native

    if os.environ.get("TRITON_INTERPRET") == "1":
        raise RuntimeError("TRITON_INTERPRET=0 is needed: the emulator runs what is compiled")

    def prepared(self: Any) -> None:
        if self.module is None:
            self.module, self.function = self, 0
            self._run = _launcher(self, told)

    def start(source: Any, name: str, grid: Any, threads: int, shared: int, values: Any) -> None:
        kernel = read(native.compiled(source, ARCHITECTURE).decode(), name)
        _allowed(kernel, threads, shared, values)
        counts = _run(kernel, Size(grid, threads), list(values), shared)
        if told:
            told(name, counts)

    driver.set_active(cast(Any, Driver()))  # which has what launches ask for, and no more
    with (
        patch.dict(os.environ, {EMULATED: "1"}),
        patch.object(CompiledKernel, "_init_handles", prepared),
        patch.object(tiles, "interpreted", lambda: True),
        patch.object(native, "start", start),
    ):
        yield


def _launcher(made: Any, told: Callable[[str, Counter[str]], None] | None) -> Callable[..., None]:
    facts, signature = made.metadata, list(made.src.signature.values())

    def launch(x: int, y: int, z: int, *rest: Any) -> None:
        size = Size((x, y, z), facts.num_warps * WARP)
        arguments = flat(rest[-len(signature) :], signature)
        counts = run(made.asm["ptx"], size, [*arguments, *SCRATCH], facts.shared)
        if told:
            told(made.name, counts)

    return launch
