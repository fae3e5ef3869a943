"""Short PTX written by hand, and how to run it."""

import numpy as np
import torch

from tools.ptx import launch
from tools.ptx.machine import Size

LANES = 32
PREFIX = {1: "%rs", 2: "%rs", 4: "%r", 8: "%rd"}
HEAD = """
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.visible .entry short({parameters})
{{
    .reg .pred %p<20>;
    .reg .b16 %rs<40>;
    .reg .b32 %r<100>;
    .reg .b64 %rd<40>;
    mov.u32 %r0, %tid.x;
{body}
    ret;
}}
"""


def text(body: str, *given) -> str:
    """A kernel: %r0 is the thread; %rd30, %rd31, … or %r30, … are its parameters."""
    parameters, loads = [], []
    for i, x in enumerate(given):
        kind, register = ("u64", "%rd") if isinstance(x, torch.Tensor) else ("u32", "%r")
        parameters.append(f".param .{kind} short_param_{i}")
        loads.append(f"    ld.param.{kind} {register}{30 + i}, [short_param_{i}];")
    return HEAD.format(parameters=",\n".join(parameters), body="\n".join([*loads, body]))


def played(body: str, *given, threads: int = LANES, shared: int = 0, grid=(1, 1, 1)):
    """Run it; its counts of instructions."""
    return launch.run(text(body, *given), Size(grid, threads), list(given), shared)


def padded(values, kind) -> torch.Tensor:
    """Numbers of 32 threads as bytes: those given, again and again."""
    return torch.from_numpy(np.resize(np.array(values, kind), LANES).view(np.uint8).copy())


def computed(instruction: str, *given: np.ndarray, to: type) -> np.ndarray:
    """What threads get from an instruction: {0} is where it writes, {1}, {2}, … what is given.

    A given array of truths becomes a predicate.
    """
    count, kind = max(map(len, given)), np.dtype(np.uint16 if to is bool else to)
    names, lines = [], []
    for i, x in enumerate(given, 1):
        register = f"{PREFIX[x.dtype.itemsize]}{i}"
        lines += [f"mad.wide.u32 %rd{10 + i}, %r0, {x.dtype.itemsize}, %rd{30 + i};"]
        lines += [f"ld.global.b{8 * x.dtype.itemsize} {register}, [%rd{10 + i}];"]
        lines += [f"setp.ne.b16 %p{i}, {register}, 0;"] * (x.dtype == bool)
        names.append(f"%p{i}" if x.dtype == bool else register)
    out = f"{PREFIX[kind.itemsize]}29"
    lines += [instruction.format("%p0" if to is bool else out, *names)]
    lines += [f"selp.b16 {out}, 1, 0, %p0;"] * (to is bool)
    lines += [f"mad.wide.u32 %rd10, %r0, {kind.itemsize}, %rd30;"]
    lines += [f"st.global.b{8 * kind.itemsize} [%rd10], {out};"]
    place = torch.zeros(LANES * kind.itemsize, dtype=torch.uint8)
    played("\n".join(lines), place, *(padded(x, x.dtype) for x in given))
    found = place.numpy().view(kind)[:count]
    return found.astype(bool) if to is bool else found
