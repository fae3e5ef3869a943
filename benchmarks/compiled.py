"""What the kernels of a switch are compiled to for an H100 or H200, without one.

`python -m benchmarks compiled --only "T5 bias, tiles"`: registers, bytes spilled, shared memory,
how many programs fit on a processor at once, and of each innermost loop the instructions of a warp,
in all and by kind, with the cycles that a turn of all warps takes of tensor cores and of shared
memory, 128 bytes each, loads by registers included: at least, as banks may be asked twice, and what
is added to memory isn't counted. A kernel is compiled as a step of `switches` would launch it, at
1,024 tokens in bfloat16; nothing is run. It needs Triton, whose package brings the compiler and the
disassembler.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from benchmarks.contestants import NAMED, OURS, Contestant, Place, attention, switches
from benchmarks.runner import Settings, Table

LENGTH, HEADS = 1024, 12
KINDS = {  # how instructions of a kind begin
    "products": ("HGMMA", "HMMA", "QGMMA"),
    "exp": ("MUFU",),
    "shuffles": ("SHFL",),
    "shared": ("LDS", "STS", "LDSM", "STSM"),
    "global": ("LDG", "STG", "LDGSTS", "UTMALDG", "LD.", "ST."),
    "local": ("LDL", "STL"),
    "waits": ("BAR", "WARPGROUP", "WARPSYNC", "DEPBAR", "LDGDEPBAR", "SYNCS"),
    "converts": ("F2F", "I2F", "F2I"),
}
HEAD = ["switch", "kernel", "registers", "spilled", "KiB shared", "programs", "loop"]
HEAD += ["instructions", "tensor", "memory", *KINDS]
CROSSING = {  # cycles of shared memory for a warp, by how an instruction begins; four bytes else
    **dict.fromkeys(("LDSM", "STSM", "LDGSTS", "LDS.128", "STS.128", "LDG.E.128"), 4),
    **dict.fromkeys(("LDS.64", "STS.64", "LDG.E.64"), 2),
    **dict.fromkeys(("LDS", "STS", "LDG", "SHFL"), 1),
}
# Of a processor: bytes that are shared, of which each program has the system's; registers, warps.
ROOM, LEAST, FILE, WARPS = 228 << 10, 1 << 10, 65536, 64
LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)")


SILENT = ("ST", "RED.", "BAR", "BRA", "LDGSTS", "CCTL")  # what writes no register begins so


class Driver:
    """Stands for a GPU of capability 9.0, which kernels are compiled for."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class Compiled(NamedTuple):
    """A kernel's name, machine code, shared memory, warps, and how its tiles lie by Triton."""

    name: str
    code: bytes
    shared: int  # that Triton asks for; a kernel has some of its own, and the system's
    warps: int
    tiles: str


@contextmanager
def caught() -> Iterator[list[Compiled]]:
    """Within it kernels are compiled in place of being launched, on tensors wherever they lie."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    from anyformer.ops import tiles

    found: dict[str, Compiled] = {}
    listed: list[Compiled] = []
    run: Any = JITFunction.run

    def only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        made = run(self, *args, grid=grid, warmup=True, **options)
        if made.hash not in found:
            facts = made.metadata
            made_of = made.asm["cubin"], facts.shared, facts.num_warps, made.asm["ttgir"]
            found[made.hash] = Compiled(self.fn.__name__, *made_of)
            listed.append(found[made.hash])
        return made

    driver.set_active(Driver())
    with patch.object(JITFunction, "run", only), patch.object(tiles, "interpreted", lambda: True):
        yield listed


def disassembled(code: bytes) -> tuple[str, str]:
    """What the disassembler says of machine code: its use of resources, and its instructions."""
    import triton

    tool = pathlib.Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        ask = lambda option: (
            subprocess.run(
                [tool, option, file.name], capture_output=True, text=True, check=True
            ).stdout
        )
        return ask("-res-usage"), ask("-sass")


Line = tuple[int, str, str]  # of machine code: where it is, an instruction and its operands


def turns(sass: str) -> tuple[list[Line], list[tuple[int, int]]]:
    """All instructions, and where loops begin and end."""
    lines = [(int(at, 16), name, rest) for at, name, rest in LINE.findall(sass)]
    ends = []
    for at, name, rest in lines:
        to = re.search(r"0x([0-9a-f]+)", rest)
        if name.startswith("BRA") and to and int(to[1], 16) < at:
            ends.append((int(to[1], 16), at))
    return lines, ends


def written(name: str, rest: str, bank: str = "R") -> range:
    """The registers that an instruction writes; bank: R, or UR for those that all threads share."""
    first = re.match(rf"\s+(?:U?P\w+,\s+)?{bank}(\d+)\b", rest)
    if not first or name.startswith(SILENT):
        return range(0)
    product = re.match(r"HGMMA\.64x(\d+)", name)
    wide = int(product[1]) // 2 if product else 4 if ".128" in name or name.endswith(".4") else 0
    wide = wide or (2 if ".64" in name or "WIDE" in name or name == "CS2R" else 1)
    return range(int(first[1]), int(first[1]) + (wide if not name.startswith("HMMA") else 4))


def unset(sass: str) -> list[str]:
    """Registers that are read and that no instruction before has written.

    ptxas 12.8 lost what a register is to hold, so that products read values from elsewhere. Not
    counted are products' descriptors, which are named by the first of four where two are read,
    registers of which a part is written, and what is put away because there is no room.
    """
    seen, found = {"RZ", "URZ"}, []
    for at, name, rest in LINE.findall(sass):
        text = rest.split(";")[0].replace(".reuse", "")
        new = [f"{bank}{i}" for bank in ("R", "UR") for i in written(name, text, bank)]
        named = re.findall(r"\bU?R\d+", re.sub(r"gdesc\[UR\d+\]", "", text))
        read = named[1:] if new and named[:1] == new[:1] else named
        parts = new if name.startswith(("PRMT", "LOP3")) else read if name == "STL" else []
        found += [f"{x} of {name} at 0x{at}" for x in read if x not in seen and x not in parts]
        seen.update(new, read)
    return found


def lost(sass: str) -> list[str]:
    """Products whose registers hold something else from the second turn of a loop on.

    Those that the loop writes, but not before the product reads them: ptxas 12.8 gives registers of
    what stays the same away, where nothing reads it behind the loop.
    """
    lines, ends = turns(sass)
    found = []
    for at, name, rest in lines:
        left = re.match(r"\s+R\d+, R(\d+),", rest)
        if not name.startswith("HGMMA") or not left:
            continue
        for begin, end in ends:
            body = [line for line in lines if begin <= line[0] <= end] if begin <= at <= end else []
            for register in range(int(left[1]), int(left[1]) + 4):
                writes = [where for where, *line in body if register in written(*line)]
                if writes and min(writes) >= at:
                    found.append(f"R{register} of {name} at {at:#x}")
    return found


def loops(sass: str) -> list[list[str]]:
    """The instructions of each innermost loop, in the order of the code."""
    lines, ends = turns(sass)
    inner = [
        one
        for one in ends
        if not any(one[0] <= a and z <= one[1] and (a, z) != one for a, z in ends)
    ]
    return [[f"{name} {rest}" for at, name, rest in lines if a <= at <= z] for a, z in inner]


def cycles(loop: list[str], warps: int) -> tuple[int, int]:
    """Of tensor cores and of shared memory in a turn of all warps; four multiply together."""
    tensor = memory = 0.0
    for line in loop:
        product = re.match(r"HGMMA\.64x(\d+)x16\S*\s+R\d+, (gdesc)?", line)
        if product:
            tensor += int(product[1]) / 2
            memory += int(product[1]) / 4 + (16 if product[2] else 0)
        else:
            memory += 4 * next((n for x, n in CROSSING.items() if line.startswith(x)), 0)
    return round(tensor * warps / 4), round(memory * warps / 4)


def counted(names: list[str]) -> list[str]:
    """How many instructions there are, and of each kind."""
    kinds: Counter[str] = Counter()
    for name in names:
        for kind, begins in KINDS.items():
            kinds[kind] += name.startswith(begins)
    return [str(len(names)), *(str(kinds[kind]) for kind in KINDS)]


def programs(registers: int, shared: int, warps: int) -> int:
    """How many programs a processor has room for."""
    each = -(-registers // 8) * 8 * 32 * warps  # registers are given to a warp 256 at a time
    return min(ROOM // max(shared, LEAST), FILE // each, WARPS // warps)


def rows_of(switch: str, one: Compiled, least: int = 40) -> Iterator[list[str]]:
    """A row for each loop of a kernel that has so many instructions."""
    usage, sass = disassembled(one.code)
    number = lambda name: re.search(rf"{name}:(\d+)", usage)
    asked = number("REG"), number("STACK"), number("SHARED")
    registers, stack, own = (int(x[1]) if x else 0 for x in asked)
    shared = one.shared + own
    long = [names for names in loops(sass) if len(names) >= least]
    fit = programs(registers, shared, one.warps)
    cells = [switch, one.name, str(registers), str(stack), f"{shared / 1024:.0f}", str(fit)]
    alone = [[n for _, n, _ in LINE.findall(sass)]]
    for i, names in enumerate(long or alone, 1):
        count, *kinds = counted(names)
        spent = map(str, cycles(names, one.warps))
        yield [*cells, str(i) if long else "-", count, *spent, *kinds]


def compiled(settings: Settings) -> None:
    """The kernels of all switches, or of those named by --only as `switches` names them."""
    from anyformer.ops.attend import refusal

    length = settings.lengths[0] if settings.lengths else LENGTH
    p = Place("cpu", torch.bfloat16, HEADS, length, 1)
    table = Table("Kernels as compiled for capability 9.0", HEAD)
    with caught() as found:
        for switch, make in switches(p).items():
            plan, lead = make()
            given = p.inputs(lead)
            for backend in NAMED:
                one = Contestant(f"{switch}, {backend}", OURS, switch, backend)
                if one.asked(settings.only) and refusal(backend, *given, plan()) is None:
                    found.clear()
                    run, _ = attention(p, one)
                    run(*given).backward(torch.randn_like(given[0]))
                    for kernel in found:
                        table.rows += rows_of(one.name, kernel)
                        sass = disassembled(kernel.code)[1]
                        told = [f"lost {x}" for x in lost(sass)]
                        told += [f"never written: {x}" for x in unset(sass)]
                        table.notes += [f"{one.name}, {kernel.name}: {x}" for x in told]
    table.notes.append("instructions are those of one warp for one turn of a loop")
    table.show(settings, "sm90_compiled")
