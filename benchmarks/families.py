"""A training step of each family: ours, as a run takes it, beside the peers'.

`python -m benchmarks families --device cuda`: the families of `twins` in their base sizes, in
bfloat16, without dropout, on random tokens, AdamW and clipping included; GPT-2's peer comes eager
and compiled, `--compile` adds the other peers compiled. On a CPU the sizes are tiny, and the table
says only that all of it runs.
"""

from __future__ import annotations

import gc
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.model.count import count
from anyformer.model.model import build
from anyformer.objectives.base import Batch, Trainee
from anyformer.train.prepare import prepare
from anyformer.train.ranks import alone
from anyformer.train.settings import Settings as Training
from anyformer.train.step import Stepper
from benchmarks.minimal import Minimal
from benchmarks.runner import Settings, Table, interval, race
from benchmarks.twins import FAMILIES, Family, sizes

STEPS = 4  # of a round
Step = Callable[[], None]


def ours(family: Family, spec: S.Model, batch: Batch, device: torch.device, **more: Any) -> Step:
    """A step of a run: what the loop does with a batch, blocks compiled on a GPU."""
    gpu = device.type == "cuda"
    settings = Training(
        steps=10**9, batch=len(batch["labels"]), lr=1e-4, compile=gpu,
        precision="bfloat16" if gpu else "float32", **more,
    )  # fmt: skip
    trainee = Trainee(build(spec).to(device).train(), family.objective(spec))
    prepare(trainee, settings)
    stepper, turn = Stepper(alone(trainee), settings, device), [0]
    batches = [{name: ids.cpu().pin_memory() if gpu else ids for name, ids in batch.items()}]

    def step() -> None:
        turn[0] += 1
        stepper.run(turn[0], batches, 1.0, False, metrics=False)

    return step


def peer(model: nn.Module, batch: Batch, device: torch.device, compiled: bool) -> Step:
    """A step of a peer: its loss under autocast, clipping, and a fused AdamW."""
    model = model.to(device).train()
    called: Any = torch.compile(model) if compiled else model
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            out = called(**batch)
        (out if isinstance(out, Tensor) else out.loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def many(step: Step, device: torch.device) -> Step:
    """Several steps, waited for."""

    def run() -> None:
        for _ in range(STEPS):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return run


def contestants(
    family: Family, spec: S.Model, batch: Batch, device: torch.device, compiled: bool
) -> dict[str, Callable[[], Step]]:
    """Those that race, each made when it is asked for."""
    made = lambda **more: lambda: ours(family, spec, batch, device, **more)
    found: dict[str, Callable[[], Step]] = {"anyformer": made()}
    if family.graph and device.type == "cuda":
        found["anyformer, one graph"] = made(graph=True)
    if family.hand and device.type == "cuda":
        found["anyformer, one graph, 16-bit stream"] = made(graph=True, stream="bfloat16")
    if family.float8 and device.type == "cuda":
        found["anyformer, float8"] = made(float8=True)
    both = compiled or (family.compiled and device.type == "cuda")
    for named, ways in {"eager": False, **({"compiled": True} if both else {})}.items():
        make = lambda ways=ways: peer(family.theirs(spec), batch, device, ways)
        found[f"transformers, {named}"] = make
    if family.hand:
        gpu = device.type == "cuda"
        found[f"by hand{', compiled' if gpu else ''}"] = lambda: peer(
            Minimal(**sizes(spec)), batch, device, gpu
        )
    return found


def rate(device: torch.device) -> float:
    """Operations a second of large products in bfloat16, measured."""
    a = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    best = float("inf")
    for _ in range(8):
        torch.cuda.synchronize()
        start = time.perf_counter()
        a @ a
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * 8192**3 / best


def _measured(family: Family, settings: Settings, roof: float | None, table: Table) -> None:
    device, tiny = torch.device(settings.device), settings.device == "cpu"
    torch.manual_seed(0)
    spec = family.ours(tiny)
    batch = family.batch(spec, settings.device, tiny)
    steps, memory = {}, {}
    for name, make in contestants(family, spec, batch, device, settings.compile).items():
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        try:
            step = many(make(), device)
            step()
        except torch.OutOfMemoryError as error:  # of a peer that holds all scores, say
            print(f"{family.name}, {name}: left out, {str(error).splitlines()[0]}", flush=True)
            continue
        steps[name] = step
        peak = torch.cuda.max_memory_allocated() - before if device.type == "cuda" else 0
        memory[name] = peak / 2**30
    times = race(steps, settings.rounds)
    rows, length = len(batch["labels"]), None if "pixel_values" in batch else family_length(batch)
    counted = count(spec, length)
    tokens = rows * counted.length * (2 if family.paired else 1)
    work = 3 * counted.flops * rows
    for name, spent in times.items():
        each = statistics.median(spent) / STEPS
        ratio = interval([a / b for a, b in zip(spent, times["anyformer"], strict=True)])
        share = f"{work / each / roof:.0%}" if roof else "-"
        cells = [f"{tokens / each / 1e3:.0f}", f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})"]
        table.rows.append([family.name, name, *cells, share, f"{memory[name]:.1f}"])
    table.raw[family.name] = times


def family_length(batch: Batch) -> int:
    """Tokens of a row."""
    return batch["labels"].shape[1]


def wanted(settings: Settings) -> list[Family]:
    """Families that are named, or all; on a CPU, where all are tiny, one GPT-2 is enough."""
    names = [family.name for family in FAMILIES]
    wrong = [name for name in settings.only if name not in names]
    if wrong:
        raise SystemExit(f"--only: {', '.join(wrong)} isn't one of {', '.join(names)}")
    sizes = settings.device == "cuda" or bool(settings.only)
    chosen = [f for f in FAMILIES if not settings.only or f.name in settings.only]
    return [family for family in chosen if sizes or not family.name.startswith("gpt2-")]


def families(settings: Settings) -> None:
    """Every family, or those named by --only."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(settings.threads)
    roof = rate(torch.device("cuda")) if settings.device == "cuda" else None
    head = ["family", "contestant", "thousand tokens/s", "their time / ours", "of rate", "GiB"]
    table = Table(f"Training steps, {settings.device}", head)
    for family in wanted(settings):
        _measured(family, settings, roof, table)
        print(table.text(), flush=True)
        gc.collect()
    if roof:
        table.notes.append(f"{torch.cuda.get_device_name()}, products at {roof / 1e12:.0f} TFLOP/s")
    table.notes.append("no dropout; a step is forward, backward, clipping and AdamW")
    table.show(settings, f"{'h200' if roof else 'cpu'}_families")
