"""From a cold process to the first output of a folder: imports, weights, one forward pass.

Every run is a process of its own; the file is warm in the page cache for all alike. The peak is
what the process itself says of its memory at the end (VmHWM).
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import anyformer
from anyformer.checkpoint.huggingface import Origin
from benchmarks.runner import Settings, Table, interval

OURS, THEIRS = "anyformer", "transformers"
END = """
import json, pathlib
status = pathlib.Path("/proc/self/status").read_text().splitlines()
peak = next(int(x.split()[1]) / 1024 for x in status if x.startswith("VmHWM"))
times = {"import": loaded - start, "load": read - loaded, "run": done - read}
times["cpu"] = time.process_time()
print(json.dumps(times | {"peak": peak}))
"""
RUN = """
read = time.perf_counter()
with torch.no_grad():
    model(torch.arange(16)[None])
done = time.perf_counter()
"""
PROGRAMS = {
    OURS: """
import sys, time; start = time.perf_counter()
import torch, anyformer; from anyformer import load
loaded = time.perf_counter()
model = load(sys.argv[1])
"""
    + RUN
    + END,
    THEIRS: """
import sys, time; start = time.perf_counter()
import torch; from transformers import BertForMaskedLM
loaded = time.perf_counter()
model = BertForMaskedLM.from_pretrained(sys.argv[1]).eval()
"""
    + RUN
    + END,
}


def folder_of(home: pathlib.Path) -> float:
    """A BERT-base with random weights in a folder; its MiB."""
    from anyformer import spec as S

    spec = anyformer.recipe("bert")
    head = S.Vocabulary(tied=True, bias=True, dense=True, act="gelu", norm=spec.embed.norm)
    model = anyformer.build(S.override(spec, "head", head))
    model.origin = Origin("bert", "masked-lm", {})
    model.save_pretrained(home)
    return (home / "model.safetensors").stat().st_size / 2**20


def once(name: str, home: pathlib.Path, threads: int) -> dict[str, float]:
    """Seconds and MiB of one process."""
    path = os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    env = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    env |= {"PYTHONPYCACHEPREFIX": str(home / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    start = time.perf_counter()
    words = [sys.executable, "-c", PROGRAMS[name], str(home)]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    wall = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1]) | {"wall": wall}


def cold(settings: Settings) -> None:
    """Ours and transformers in turn; the ratios of wall time and peak memory."""
    runs: dict[str, list[dict[str, float]]] = {OURS: [], THEIRS: []}
    with tempfile.TemporaryDirectory() as scratch:
        home = pathlib.Path(scratch)
        size = folder_of(home)
        order, dice = list(runs), random.Random(0)
        for turn in range(settings.rounds + 1):  # the first fills the caches
            dice.shuffle(order)
            for name in order:
                found = once(name, home, settings.threads)
                if turn:
                    runs[name].append(found)
                    print(name, *(f"{k} {v:.2f}" for k, v in found.items()), flush=True)
    head = ["", "best s", "median s", "import s", "load s", "first output s", "CPU s", "peak MiB"]
    table = Table(
        "Cold process to the first output of a BERT-base folder, CPU", [*head, "ratio of times"]
    )
    for name, found in runs.items():
        middle = {key: statistics.median(r[key] for r in found) for key in found[0]}
        pairs = zip(found, runs[OURS], strict=True)
        ratio, low, high = interval([a["wall"] / b["wall"] for a, b in pairs])
        cells = [min(r["wall"] for r in found), middle["wall"], middle["import"]]
        cells += [middle["load"], middle["run"], middle["cpu"]]
        ends = [f"{middle['peak']:.0f}", f"{ratio:.2f} ({low:.2f} to {high:.2f})"]
        table.rows.append([name, *(f"{x:.2f}" for x in cells), *ends])
    table.raw.update(runs)
    table.notes += [
        f"{size:.0f} MiB of safetensors in float32, random weights; the file is in the page cache",
        "import, load, first output: parts of the wall time; CPU: of the process; all medians",
        "ratio: of the other's wall time to ours in the same round, median and 95 % interval",
    ]
    table.show(settings, "cpu_load")
