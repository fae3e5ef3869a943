"""A training step of each family: ours, as a run takes it, beside the peers'.

`python -m benchmarks families --device cuda`: the families of `twins` in their base sizes, in
bfloat16, without dropout, on random tokens, AdamW and clipping included; GPT-2's peer comes eager
and compiled, `--compile` adds the other peers compiled. `--only` names families, contestants or
both: `--only gpt2-1.3b "anyformer, one graph, 16-bit stream"`. On a CPU the sizes are tiny, and the
table says only that all of it runs.
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
OURS = {  # contestants of ours on a GPU, and what they ask for
    "anyformer": {},
    "anyformer, one graph": {"graph": True},
    "anyformer, one graph, 16-bit stream": {"graph": True, "stream": "bfloat16"},
    "anyformer, float8": {"float8": True},
}
HAND = "by hand, compiled"
PEERS = ("transformers, eager", "transformers, compiled", "by hand", HAND)
Step = Callable[[], None]


def ours(family: Family, spec: S.Model, batch: Batch, device: torch.device, **more: Any) -> Step:
    """A step of a run: what the loop does with a batch, blocks compiled on a GPU."""
    gpu = device.type == "cuda"
    settings = Training(
        steps=10**9, batch=len(batch["labels"]), lr=1e-4, compile=gpu,
        precision="bfloat16" if gpu else "float32", **more,
    )  # fmt: skip
    with device:  # a CPU takes half a minute to draw a billion weights
        model = build(spec).to(device)
    trainee = Trainee(model.train(), family.objective(spec))
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
    gpu = device.type == "cuda"
    graphs = [family.graph, family.graph and family.hand]
    asked = zip(OURS, [True, *(on and gpu for on in (*graphs, family.float8))], strict=True)
    made = lambda name: lambda: ours(family, spec, batch, device, **OURS[name])
    found: dict[str, Callable[[], Step]] = {name: made(name) for name, on in asked if on}
    both = compiled or (family.compiled and gpu)
    for named, ways in {"eager": False, **({"compiled": True} if both else {})}.items():
        make = lambda ways=ways: peer(family.theirs(spec), batch, device, ways)
        found[f"transformers, {named}"] = make
    if family.hand:
        make = lambda: peer(Minimal(**sizes(spec)), batch, device, gpu)
        found[HAND if gpu else "by hand"] = make
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
    every = contestants(family, spec, batch, device, settings.compile)
    named = [name for name in every if name in settings.only]
    for name in named or every:
        make = every[name]
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
    work, first = 3 * counted.flops * rows, next(iter(times))
    for name, spent in times.items():
        each = statistics.median(spent) / STEPS
        ratio = interval([a / b for a, b in zip(spent, times[first], strict=True)])
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
    known = [*names, *OURS, *PEERS]
    wrong = [name for name in settings.only if name not in known]
    if wrong:
        raise SystemExit(f"--only: {', '.join(wrong)} isn't one of {', '.join(known)}")
    asked = [name for name in settings.only if name in names]
    sizes = settings.device == "cuda" or bool(asked)
    chosen = [f for f in FAMILIES if not asked or f.name in asked]
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
        torch._dynamo.reset()  # a block is compiled for eight kinds of calls, then no more
    if roof:
        table.notes.append(f"{torch.cuda.get_device_name()}, products at {roof / 1e12:.0f} TFLOP/s")
    table.notes.append("no dropout; a step is forward, backward, clipping and AdamW")
    table.show(settings, f"{'h200' if roof else 'cpu'}_families")
