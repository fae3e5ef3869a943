"""A training step over a large vocabulary, with all logits and in chunks: time and memory.

`python -m benchmarks entropy`: a GPT-2 of 4 layers and width 256 on a CPU, of 124M parameters with
`--device cuda`. Each way runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from anyformer.model import heads
from anyformer.model.model import build
from anyformer.objectives.base import Trainee
from anyformer.objectives.causal import NextToken
from anyformer.recipes import recipe
from benchmarks.runner import Settings, Table

VOCAB = 50257
WAYS = {"all logits": 1 << 62, "in chunks": heads.LARGE}
SIZES = {
    "cpu": ({"dim": 256, "depth": 4, "heads": 4, "length": 256}, 8),
    "cuda": ({"dim": 768, "depth": 12, "heads": 12, "length": 1024}, 32),
}


def spent(way: str, settings: Settings) -> tuple[float, float]:
    """Seconds of a step, forward and backward, the best of some, and its peak in MiB."""
    gpu, (size, rows) = settings.device == "cuda", SIZES[settings.device]
    torch.set_num_threads(settings.threads)
    heads.LARGE = WAYS[way]
    torch.manual_seed(0)
    model = build(recipe("gpt2", vocab=VOCAB, dropout=0.0, **size)).to(settings.device).train()
    trainee = Trainee(model, NextToken(cross=True))
    trainee.metrics = False
    ids = torch.randint(0, VOCAB, (rows, size["length"] + 1), device=settings.device)
    batch, best = {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}, float("inf")
    for _ in range(settings.rounds + 1):
        start = time.perf_counter()
        with torch.autocast(settings.device, torch.bfloat16, enabled=gpu):
            loss = trainee(batch).losses["tokens"] / ids.numel()
        loss.backward()
        model.zero_grad()
        if gpu:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return best, torch.cuda.max_memory_allocated() / 2**20 if gpu else peak


def entropy(settings: Settings) -> None:
    """Both ways, in turn."""
    table = Table(
        f"A step over {VOCAB} words, {settings.device}",
        ["loss", "best s", "of all logits", "peak MiB", "of all logits"],
    )
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(2):
        for way, some in found.items():
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                some.append(pool.submit(spent, way, settings).result())
    best = {way: tuple(map(min, zip(*some, strict=True))) for way, some in found.items()}
    base = best["all logits"]
    for way, (seconds, peak) in best.items():
        ratios = f"{seconds / base[0]:.2f}", f"{peak / base[1]:.2f}"
        table.rows.append([way, f"{seconds:.2f}", ratios[0], f"{peak:.0f}", ratios[1]])
    table.raw = dict(found)
    table.show(settings, f"{settings.device}_entropy")
