"""Kernels in CUDA C++ beside Triton's: NVRTC compiles them, CUDA's driver launches them.

Both are libraries that a CUDA build of torch comes with, and are called by ctypes: no compiler has
to be installed, and nothing is built with the package. Sources (`*.cu`) lie beside this file, in
the package, and include one header, warps.cuh. A kernel is compiled when it is launched first,
which can't be while a CUDA graph is captured. `tools/ptx` runs them without a GPU, as it does
Triton's.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterable
from importlib import resources, util
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

STATIC, DYNAMIC = 1, 8  # of the driver's attributes: what a kernel has, and what it may be given
SHARED = "warps.cuh"  # what sources may include, and nothing else
MAJORS = "13", "12"  # of NVRTC, where torch was built without CUDA
EMULATED = "ANYFORMER_EMULATED"  # is 1 while tools/ptx plays the GPU
PACKAGES = {"13": "nvidia-cuda-nvrtc", "12": "nvidia-cuda-nvrtc-cu12"}
Grid = tuple[int, int, int]
Value = Tensor | int | float


class Native(NamedTuple):
    """A source beside this file (or a path elsewhere), and the macros it is compiled with."""

    source: str
    macros: tuple[str, ...] = ()  # "NAME=VALUE" or "NAME"

    def launch(self, name: str, grid: Grid, threads: int, shared: int, *values: Value) -> None:
        """Run a kernel: grid of blocks of threads, each with bytes of dynamic shared memory.

        Values are its parameters: tensors are pointers, integers `int`, other numbers `float`.
        """
        for value in values:
            if isinstance(value, int) and not -(2**31) <= value < 2**31:
                raise OverflowError(f"{name}: {value} is no int of 32 bits: give it in parts")
        start(self, name, grid, threads, shared, values)


# -------------------------------------------------------------------- what is needed


def lacks() -> str | None:
    """Why kernels in CUDA C++ can't run here, or None; no GPU is asked."""
    emulated = os.environ.get(EMULATED) == "1"
    if not emulated and os.environ.get("TRITON_INTERPRET") == "1":
        return "is in CUDA C++, which Triton's interpreter can't run: unset TRITON_INTERPRET"
    if not emulated and torch.version.cuda is None:
        return "is in CUDA C++ and needs a CUDA build of torch: https://pytorch.org/get-started"
    return None if compiler() else f"is in CUDA C++ and needs NVRTC: {remedy()}"


def remedy() -> str:
    """How NVRTC is installed."""
    return f"pip install {PACKAGES.get(_majors()[0], PACKAGES[MAJORS[0]])}"


def _majors() -> tuple[str, ...]:
    """Versions of CUDA whose NVRTC will do, the best first."""
    return (torch.version.cuda.split(".")[0],) if torch.version.cuda else MAJORS


# ------------------------------------------------------------------------ compile


@functools.cache
def compiler() -> ctypes.CDLL | None:
    """NVRTC, which torch has loaded or which a package of NVIDIA's has; None where there is none.

    It looks for its own second library by name alone, so that one is loaded ahead.
    """
    for major in _majors():
        near = _near(f"libnvrtc-builtins.so.{major}.*")
        for name in (f"libnvrtc.so.{major}", *_near(f"libnvrtc.so.{major}")):
            found = _opened(name)
            if found:
                for other in near:
                    _opened(other)
                return found
    return None


def _near(pattern: str) -> Iterable[str]:
    """Files of that name in NVIDIA's packages."""
    spec = util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec else None
    return [str(x) for folder in folders or () for x in Path(folder).glob(f"*/lib/{pattern}")]


def _opened(name: str) -> ctypes.CDLL | None:
    """A library, if it is there."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


@functools.cache
def compiled(native: Native, architecture: str) -> bytes:
    """Machine code for `sm_…`, PTX for `compute_…`."""
    nvrtc = compiler()
    if nvrtc is None:
        raise RuntimeError(f"{native.source} {lacks()}")
    folder = resources.files("anyformer.ops.kernels")
    text = folder.joinpath(native.source).read_bytes()
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "--generate-line-info"]
    options += [f"-D{macro}" for macro in native.macros]
    given = (ctypes.c_char_p * len(options))(*(x.encode() for x in options))
    program = ctypes.c_void_p()
    name = Path(native.source).name.encode()
    shared = folder.joinpath(SHARED).read_bytes()
    headers = (ctypes.c_char_p * 1)(shared), (ctypes.c_char_p * 1)(SHARED.encode())
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 1, *headers):
        raise RuntimeError(f"NVRTC takes no program: is {compiler()} a whole installation?")
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), given):
            log = _told(nvrtc, "ProgramLog", program).rstrip(b"\0").decode()
            raise RuntimeError(f"NVRTC can't compile {native.source} ({' '.join(options)}):\n{log}")
        return _told(nvrtc, "CUBIN" if architecture.startswith("sm_") else "PTX", program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _told(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    """What NVRTC made, or said."""
    size = ctypes.c_size_t()
    if getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)):
        raise RuntimeError(f"NVRTC has no {what}: it is too old for this GPU; install a newer one")
    room = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, room)
    return room.raw


# ------------------------------------------------------------------------- launch


@functools.cache
def driver() -> ctypes.CDLL:
    """CUDA's driver, which torch and Triton have loaded."""
    return ctypes.CDLL("libcuda.so.1")


def checked(status: int, name: str, what: str = "memory") -> None:
    """Raise what the driver refuses."""
    if status:
        raise RuntimeError(f"CUDA's driver answers {status} when asked for {what} of {name!r}")


def start(
    native: Native, name: str, grid: Grid, threads: int, shared: int, values: tuple[Value, ...]
) -> None:
    """On the GPU of the first tensor, in torch's current stream; the emulator has its own."""
    device = next(x.device for x in values if isinstance(x, Tensor))
    held = [_held(x) for x in values]
    pointers = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
    with torch.cuda.device(device):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        checked(driver().cuCtxSetCurrent(_context(device.index)), name, "the context")
        size = (*grid, threads, 1, 1, shared)
        done = driver().cuLaunchKernel(
            _function(native, name, device.index), *size, stream, pointers, None
        )
        checked(done, name, f"a launch of {size}")


def _held(value: Value) -> Any:
    """A value as C has it."""
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    if isinstance(value, float):
        return ctypes.c_float(value)
    return ctypes.c_int(value)


@functools.cache
def _context(device: int) -> ctypes.c_void_p:
    """The one that torch uses; a thread of autograd's may not have it yet."""
    number, context = ctypes.c_int(), ctypes.c_void_p()
    checked(driver().cuDeviceGet(ctypes.byref(number), device), f"cuda:{device}", "the number")
    made = driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), number)
    checked(made, f"cuda:{device}", "the context")
    return context


@functools.cache
def _function(native: Native, name: str, device: int) -> ctypes.c_void_p:
    """A kernel on a GPU, which may be given all shared memory that is left."""
    about = torch.cuda.get_device_properties(device)
    code = compiled(native, f"sm_{about.major}{about.minor}{'a' * (about.major >= 9)}")
    module, function, own = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    checked(driver().cuModuleLoadData(ctypes.byref(module), code), name, "the code")
    found = driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode())
    checked(found, name, "the kernel")
    checked(driver().cuFuncGetAttribute(ctypes.byref(own), STATIC, function), name)
    room = about.shared_memory_per_block_optin - own.value
    checked(driver().cuFuncSetAttribute(function, DYNAMIC, room), name)
    return function
