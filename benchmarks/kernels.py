"""Where the time of a token goes on a GPU: `python -m benchmarks kernels --only gpt-2-64`.

Kernels that start early count the time that they wait for those before them.
"""

from __future__ import annotations

import gc
import statistics
import time

import torch
from torch.profiler import ProfilerActivity, profile

from anyformer.generate import generate
from anyformer.generate.static import Static
from benchmarks.decode import GPT2, LLAMA, NEW, PROMPT, Size
from benchmarks.runner import Settings, Table

SHOWN = 16  # kernels of each case
CASES = {"gpt-2-1": (GPT2, 1), "gpt-2-64": (GPT2, 64), "llama-shaped-1": (LLAMA, 1)}


def _measured(name: str, size: Size, rows: int, settings: Settings, table: Table) -> None:
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = size.ours().to(torch.bfloat16)
    ids = torch.randint(0, size.vocab, (rows, PROMPT), device="cuda")
    fixed, spent = Static(model, room=NEW, compile=settings.compile), []
    for _ in range(settings.rounds + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        generate(model, ids, NEW, decoder=fixed)
        torch.cuda.synchronize()
        spent.append(time.perf_counter() - start)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        generate(model, ids, NEW, decoder=fixed)
        torch.cuda.synchronize()
    whole = statistics.median(spent[1:]) / NEW * 1e6
    table.rows.append([name, f"{rows / whole * 1e6:.0f} tokens/s", f"{whole:.1f}", ""])
    kernels = sorted(seen.key_averages(), key=lambda e: -e.self_device_time_total)
    for event in kernels[:SHOWN]:
        took, count = event.self_device_time_total / NEW, event.count / NEW
        table.rows.append([name, event.key[:70], f"{took:.1f}", f"{count:.1f}"])


@torch.inference_mode()
def kernels(settings: Settings) -> None:
    """The cases of generation, or those named by --only."""
    if not torch.cuda.is_available():
        raise SystemExit("kernels are those of a GPU: run it where one is")
    table = Table("Kernels of a token", ["case", "kernel", "µs a token", "launches a token"])
    for name, (size, rows) in CASES.items():
        if not settings.only or name in settings.only:
            _measured(name, size, rows, settings, table)
            gc.collect()
            torch.cuda.empty_cache()
    table.show(settings, "gpu_kernels")
