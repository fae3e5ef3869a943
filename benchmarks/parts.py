"""Which kernels a switch's time goes to on a GPU: `python -m benchmarks parts --device cuda`.

Kernels of one step, forward and backward, by torch's profiler, the contestants of `switches` that
are named by --only, or those with kernels of ours. Their sum leaves out what lies between them, so
it is what a captured step comes near to. Lengths by --lengths; 1,024 and 8,192 else.
"""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.contestants import KERNELS, PLAIN, Contestant, Place, contestants
from benchmarks.runner import Settings, Table
from benchmarks.switches import TOKENS, freed, made

HEADS, STEPS, SHOWN = 12, 3, 7  # kernels of each row that are named


def _measured(p: Place, one: Contestant) -> list[tuple[str, float, float]]:
    """Names of kernels, µs of a step and launches, the longest first."""
    step = made(p, one)
    step(2)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step(STEPS)
    events = sorted(seen.key_averages(), key=lambda e: -e.self_device_time_total)
    found = [(e.key, e.self_device_time_total / STEPS, e.count / STEPS) for e in events]
    return [one for one in found if one[1] > 0]


def parts(settings: Settings) -> None:
    """Each row's kernels, and their sum beside plain attention's."""
    if not torch.cuda.is_available():
        raise SystemExit("kernels are those of a GPU: run it where one is")
    table = Table(
        "Kernels of switches, forward and backward",
        ["length", "attention", "µs", "of plain", "kernels"],
    )
    for length in settings.lengths or (1024, 8192):
        p = Place("cuda", torch.bfloat16, HEADS, length, max(1, TOKENS // length))
        plain = float("inf")
        for one in contestants(p, settings.only or (KERNELS,)):
            kernels = _measured(p, one)
            total = sum(spent for _, spent, _ in kernels)
            plain = min(plain, total) if one.family == PLAIN else plain
            named = [f"{name[:40]} {us:.0f} x{n:.0f}" for name, us, n in kernels[:SHOWN]]
            cells = [str(length), one.name, f"{total:.0f}", f"{total / plain:.2f}"]
            table.rows.append([*cells, ", ".join(named)])
            table.raw[f"{length} {one.name}"] = kernels
            print("| " + " | ".join(table.rows[-1]) + " |", flush=True)
            freed()
    table.notes.append(torch.cuda.get_device_name())
    table.show(settings, "h200_parts")
