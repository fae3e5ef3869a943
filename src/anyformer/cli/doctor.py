"""`anyformer doctor`: what this machine has, and which fast path each switch takes on it."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from anyformer.cli.processor import remedy
from anyformer.cli.text import columns
from anyformer.errors import InputError

if TYPE_CHECKING:
    from anyformer.laws.ways import Way
    from anyformer.ops.fastest import Found
    from anyformer.spec import Model

EXAMPLE = """\
anyformer doctor
anyformer doctor --why --length 4096"""

BRANCH = "stack.block.0.branch"
SWITCHES: dict[str, dict[str, str]] = {  # what is changed in a plain decoder
    "plain": {},
    "window": {"window": "128"},
    "memory keys": {"memory": "16"},
    "shared keys": {"kv_heads": "1"},
    "T5 bias": {"relative": "(Buckets(bidirectional=False),)"},
    "ALiBi": {"relative": "(ALiBi(),)"},
    "ALiBi, learned": {"relative": "(ALiBi(learned=True),)"},
    "Shaw": {"relative": "(Shaw(clip=64),)"},
    "Transformer-XL": {"relative": "(XL(),)"},
    "talking heads": {"talking": '"both"'},
    "top-k": {"weigh": "TopK(k=8)"},
    "entmax": {"weigh": "Entmax15()"},
    "sparsemax": {"weigh": "Sparsemax()"},
    "soft cap": {"mods": "(SoftCap(value=30.0),)"},
    "residual attention": {"carry": "True"},
    "dropout": {"dropout": "0.1"},
}
DEEP = 6  # layers where scores are carried: what runs them depends on how many are below
EXTRAS = ("triton", "matplotlib", "ray", "huggingface_hub", "pyarrow", "PIL", "sentencepiece")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("--length", type=int, default=1024, help="positions (default: 1024)")
    parser.add_argument("--why", action="store_true", help="say why no faster path is taken")
    place_arguments(parser)


def place_arguments(parser: argparse.ArgumentParser) -> None:
    """Where and in which numbers: as `show --plan` asks too."""
    parser.add_argument("--device", help="cpu or cuda (default: a GPU, where there is one)")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"),
        help="of weights (default: float32 on a CPU, bfloat16 on a GPU)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print what there is, then a table of switches."""
    if args.length < 2:
        raise InputError(f"--length {args.length}: give 2 or more")
    place = place_of(args)
    print(*columns([*machine()]), "", sep="\n")
    print(f"attention of {args.length:,} positions on {place['device']}, {args.dtype_name}")
    rows: list[tuple[str, ...]] = [("switch", "training", "reading", "one more token")]
    told: list[str] = []
    for name, changes in SWITCHES.items():
        found = ways_of(changes, args.length, place)
        rows.append(
            (name, *(_backends(found, work) for work in ("train", "read", "one more token")))
        )
        told += [f"{name}, {line}" for line in reasons(found)]
    print(*columns(rows), sep="\n")
    if place["device"] == "cuda":
        print("", *fused_lines(args.length, place), sep="\n")
    if args.why:
        print("", *told, sep="\n")
    return 0


def fused_lines(length: int, place: dict[str, Any]) -> list[str]:
    """Which of torch's kernels `sdpa` takes for the plain decoder's shape, with their times."""
    import torch

    from anyformer.ops import fastest

    size, device = (1, 4, length, 64), torch.device(place["device"], 0)
    lines = [f"sdpa takes the fastest of torch's kernels, here for {size}, causal:"]
    for work, learns in (("training", True), ("reading", False)):
        shape = fastest.Shape(size, size, None, None, True, False, learns, place["dtype"], device)
        lines.append(f"  {work}: {fused_line(fastest.measured(shape))}")
    return [
        *lines,
        f"  it measures a shape of {fastest.WORTH:,} scores or more once in a process, while a "
        "graph is compiled too;",
        "  fewer scores, graphs for all lengths, and deterministic mode take torch's own order",
    ]


def fused_line(found: Found) -> str:
    """The kernel that is taken, and the times of all."""
    if found.why:
        return f"torch's own ({found.own or 'not asked'}): {found.why}"
    times = ", ".join(f"{name} {ms:.3f} ms" for name, ms in sorted(found.times.items()))
    first = found.order.split()[0] if found.order else f"{found.own}, torch's own"
    return f"{first} ({times})"


def place_of(args: argparse.Namespace) -> dict[str, Any]:
    """Device and dtype that were asked for, or those that this machine is best at."""
    import torch

    there = torch.cuda.is_available()
    device = args.device or ("cuda" if there else "cpu")
    if device not in ("cpu", "cuda") or (device == "cuda" and not there):
        known = "cpu or cuda" if there else "cpu alone"
        raise InputError(f"--device {device}: this machine has {known}: give that")
    args.dtype_name = args.dtype or ("bfloat16" if device == "cuda" else "float32")
    return {"device": device, "dtype": getattr(torch, args.dtype_name)}


def ways_of(changes: dict[str, str], length: int, place: dict[str, Any]) -> list[Way]:
    """The ways of a plain decoder with some changes to its attention."""
    from anyformer.laws.ways import ways

    return ways(decoder(changes, length), length, **place)


def decoder(changes: dict[str, str], length: int) -> Model:
    """A plain decoder with some changes to its attention."""
    from anyformer import spec as S
    from anyformer.recipes import recipe

    depth = DEEP if "carry" in changes else 2
    spec = recipe("decoder", dim=256, heads=4, depth=depth, vocab=max(length, 64), length=length)
    for field, value in changes.items():
        spec = S.override(spec, f"{BRANCH}.{field}", S.parse(value))
    return S.check(spec)


def machine() -> Iterable[tuple[str, str]]:
    """Names and values of what matters for speed."""
    import torch

    from anyformer.ops.attend import FAST_BFLOAT16

    yield "python", platform.python_version()
    yield "torch", torch.__version__
    yield "processor", f"{os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"
    yield "bfloat16 on the processor", _bfloat16(FAST_BFLOAT16)
    for i in range(torch.cuda.device_count()):
        told = torch.cuda.get_device_properties(i)
        yield f"GPU {i}", f"{told.name}, {told.total_memory >> 30} GiB"
    if torch.cuda.is_available():
        yield "NVRTC, for gradients in one pass", compiler_of_kernels()
    else:
        yield "GPU", "none that torch sees"
    for name in EXTRAS:
        yield name, version_of(name)


def compiler_of_kernels() -> str:
    """Whether kernels in CUDA C++ can be compiled; else Triton's do their work, in more time."""
    from anyformer.ops.kernels import native

    return "found" if native.compiler() else f"not found: {native.remedy()}"


def _bfloat16(fast: bool) -> str:
    needed = remedy()
    if needed is not None:
        return f"dies of an illegal instruction: set {needed}"
    return "fast" if fast else "slow: float32 is faster"


def version_of(name: str) -> str:
    """The version of a package that is installed."""
    if importlib.util.find_spec(name) is None:
        return "not installed"
    named = {"PIL": "pillow"}.get(name, name)
    try:
        return importlib.metadata.version(named)
    except importlib.metadata.PackageNotFoundError:
        return "installed"


def _backends(found: list[Way], work: str) -> str:
    return ", ".join(dict.fromkeys(way.backend for way in found if way.work == work))


def reasons(found: list[Way]) -> list[str]:
    """A line for each way that isn't the first choice: why not those before it."""
    lines = []
    for way in found:
        why: dict[str, list[str]] = {}
        for name, reason in way.reasons:
            why.setdefault(reason, []).append(name)
        said = "; ".join(f"{', '.join(names)} {reason}" for reason, names in why.items())
        if said:
            lines.append(f"{way.work}: {way.backend}, since {said}")
    return lines
