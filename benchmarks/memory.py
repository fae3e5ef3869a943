"""Peak memory of a training pass against the length, for every switch: it must grow linearly.

Each case runs in a process of its own, on a CPU forked before torch starts its threads; its peak
is the most memory that it held beyond what it had before the pass, on a GPU by torch's own count.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import pathlib
import time

import torch

import anyformer
from anyformer import spec as S
from anyformer.model.model import build
from benchmarks.runner import Settings, Table

LENGTHS = (512, 1024, 2048, 4096, 8192)
SELF = "stack.block.0.branch."
LEFT, RIGHT, PACKED, SEGMENTS = "left padding", "right padding", "packed documents", "XL memory"
ONE_SIDED = S.Buckets(bidirectional=False)

SWITCHES: dict[str, dict[str, object]] = {
    "plain": {},
    "scale norm": {"stack.block.*.norm": S.ScaleNorm()},
    "RMS norm": {"stack.block.*.norm": S.RMSNorm()},
    "sandwich norm": {"stack.block.*.place": "sandwich"},
    "post norm": {"stack.block.*.place": "post"},
    "ReZero": {"stack.block.*.residual": S.ReZero(), "stack.block.*.norm": None},
    "gated residual": {"stack.block.*.residual": S.Gated()},
    "gated feed-forward": {"stack.block.1.branch.gated": True},
    "memory key/values": {SELF + "memory": 16},
    "memory tokens": {"embed.memory": 16},
    "top-k": {SELF + "weigh": S.TopK(k=8)},
    "entmax-1.5": {SELF + "weigh": S.Entmax15()},
    "talking heads": {SELF + "talking": "both"},
    "collaborative heads": {SELF + "collaborate": 0.3},
    "attention on attention": {SELF + "gate": "glu"},
    "residual attention": {SELF + "carry": True},
    "grouped queries, qk norm": {SELF + "kv_heads": 2, SELF + "qk_norm": S.RMSNorm()},
    "soft cap": {SELF + "mods": (S.SoftCap(),)},
    "window": {SELF + "window": 128},
    "sandwich order": {"stack.schedule": S.Sandwich(coefficient=1)},
    "shared blocks": {"stack.schedule": S.Shared(unique=1)},
    "reversible": {"stack.reversible": True},
    "rotary": {SELF + "rotary": S.Rotary()},
    "position infused": {SELF + "infused": S.Sinusoidal()},
    "T5 bias": {"stack.relative": (ONE_SIDED,)},
    "ALiBi": {SELF + "relative": (S.ALiBi(),)},
    "relative key": {SELF + "relative": (S.Shaw(clip=64),)},
    "relative key and query": {SELF + "relative": (S.Shaw(clip=64, key_side=True),)},
    "Transformer-XL positions": {SELF + "relative": (S.XL(),)},
    "TUPE": {"stack.untied": S.Untied(length=max(LENGTHS), cls=True)},
    "attention dropout": {SELF + "dropout": 0.1},
    LEFT: {},
    RIGHT: {},
    PACKED: {},
    SEGMENTS: {"stack.recurrence": max(LENGTHS), "stack.relative": (ONE_SIDED,)},
}


def spec_of(switch: str) -> S.Model:
    """A small decoder with one switch on."""
    size = max(LENGTHS)
    spec = anyformer.recipe("decoder", dim=128, depth=2, heads=4, vocab=64, length=size)
    for path, value in SWITCHES[switch].items():
        spec = S.override(spec, path, value)
    return S.check(spec)


def arguments(switch: str, ids: torch.Tensor, model: torch.nn.Module) -> dict[str, object]:
    """What the call gets beside ids: a padding, documents or a memory of the same length."""
    half = torch.arange(ids.shape[1])[None] < ids.shape[1] // 2
    with torch.no_grad():
        return {
            LEFT: lambda: {"attention_mask": (~half).long()},
            RIGHT: lambda: {"attention_mask": half.long()},
            PACKED: lambda: {"document_ids": torch.arange(ids.shape[1])[None] // 256},
            SEGMENTS: lambda: {"mems": model(ids, return_mems=True).mems},
        }.get(switch, dict)()


def resident(what: str) -> float:
    """MiB of this process: VmRSS now, VmHWM at most."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {what}")


class Peak:
    """Seconds and MiB of what is done within, beyond what was there."""

    def __init__(self, gpu: bool):
        self.gpu = gpu

    def __enter__(self) -> Peak:
        if self.gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated() / 2**20
        else:
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
            self.before = resident("VmRSS")
        self.start = time.perf_counter()
        return self

    def __exit__(self, *raised: object) -> None:
        if self.gpu:
            torch.cuda.synchronize()
        self.seconds = time.perf_counter() - self.start
        most = torch.cuda.max_memory_allocated() / 2**20 if self.gpu else resident("VmHWM")
        self.mib = most - self.before


def measure(
    switch: str, length: int, threads: int, answer: multiprocessing.Queue, device: str = "cpu"
) -> None:
    """Seconds and peak MiB of one forward and backward pass."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = build(spec_of(switch)).to(device)
    rows = (1, length if switch != SEGMENTS else length // 2)
    ids = torch.randint(0, 64, rows).to(device)
    small = ids[:, :32]
    with autocast(device):
        model(small, labels=small).loss.backward()  # gradients and libraries are there
    extra = arguments(switch, ids, model)
    with Peak(device == "cuda") as peak, autocast(device):
        model(ids, labels=ids, **extra).loss.backward()
    answer.put((peak.seconds, peak.mib))


def autocast(device: str) -> torch.autocast:
    """As a run would: bfloat16 on a GPU."""
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")


def measured(switch: str, threads: int, device: str = "cpu") -> list[tuple[float, float]]:
    """Seconds and peak MiB of a switch at every length, each in a process of its own."""
    fork = multiprocessing.get_context("spawn" if device == "cuda" else "fork")
    found = []
    for length in LENGTHS:
        answer = fork.Queue()
        child = fork.Process(target=measure, args=(switch, length, threads, answer, device))
        child.start()
        found.append(answer.get(timeout=600))
        child.join()
    return found


def row_of(switch: str, found: list[tuple[float, float]]) -> list[str]:
    """A line of the table."""
    peaks = [peak for _, peak in found]
    slope = math.log2(peaks[-1] / peaks[-3]) / 2
    return [switch, *(f"{p:.0f}" for p in peaks), f"{slope:.2f}", f"{found[-1][0]:.1f}"]


def lengths(settings: Settings) -> None:
    """Peak memory and time of every switch at lengths from 512 to 8192."""
    head = ["switch", *(f"{n} MiB" for n in LENGTHS), "slope", "8192 s"]
    where = "GPU" if settings.device == "cuda" else "CPU"
    table = Table(f"Peak memory of forward and backward against the length, {where}", head)
    name, known = f"{'h200' if where == 'GPU' else 'cpu'}_memory", {}
    if settings.only:
        known = json.loads((pathlib.Path(settings.out or ".") / f"{name}.json").read_text())
    for switch in SWITCHES:
        if switch in settings.only or switch not in known:
            known[switch] = measured(switch, settings.threads, settings.device)
        table.raw[switch] = known[switch]
        table.rows.append(row_of(switch, known[switch]))
        print(" ".join(table.rows[-1]), flush=True)
    table.notes += [
        "2 layers, width 128, 4 heads, batch 1; slope: of log memory over log length, 2048 to 8192",
        "XL memory: half of the length is remembered, half is new",
    ]
    if where == "GPU":
        table.notes.append(f"{torch.cuda.get_device_name()}, bfloat16 by autocast; eager")
    table.show(settings, name)
