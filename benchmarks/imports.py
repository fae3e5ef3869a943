"""How long `import` takes in a new process: ours beside transformers and x-transformers.

The package by itself, which ours and transformers load in pieces, and what builds a decoder.

Every run is a process of its own, in turns; files are warm in the page cache for all alike. What
torch alone takes is a row too: nobody can be faster than that, unless it imports torch late.
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

import torch

from benchmarks.runner import Settings, Table, interval

OURS = "anyformer"
PACKAGE, BUILDER = "the package", "what builds a decoder"
PROGRAMS = {
    (PACKAGE, OURS): "import anyformer",
    (PACKAGE, "transformers"): "import transformers",
    (PACKAGE, "x-transformers"): "import x_transformers",
    (BUILDER, OURS): "from anyformer import build, recipe",
    (BUILDER, "transformers"): "from transformers import GPT2Config, GPT2LMHeadModel",
    (BUILDER, "x-transformers"): "from x_transformers import Decoder, TransformerWrapper",
    (BUILDER, "torch alone"): "import torch",
}
Case = tuple[str, str]
END = """
import json, pathlib
status = pathlib.Path("/proc/self/status").read_text().splitlines()
peak = next(int(x.split()[1]) / 1024 for x in status if x.startswith("VmHWM"))
print(json.dumps({"import": loaded - start, "cpu": time.process_time(), "peak": peak}))
"""


def once(case: Case, bytecode: pathlib.Path, threads: int) -> dict[str, float]:
    """Seconds and MiB of one process."""
    program = f"import time; start = time.perf_counter()\n{PROGRAMS[case]}"
    program += f"\nloaded = time.perf_counter()\n{END}"
    path = os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    env = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    env |= {"PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONDONTWRITEBYTECODE": ""}
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    wall = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1]) | {"wall": wall}


def imports(settings: Settings) -> None:
    """Each in turn, in a new order each round."""
    torch.set_num_threads(settings.threads)
    runs: dict[Case, list[dict[str, float]]] = {case: [] for case in PROGRAMS}
    order, dice = list(runs), random.Random(0)
    with tempfile.TemporaryDirectory() as scratch:
        for turn in range(settings.rounds + 1):  # the first fills the caches
            dice.shuffle(order)
            for case in order:
                found = once(case, pathlib.Path(scratch), settings.threads)
                if turn:
                    runs[case].append(found)
                    print(*case, *(f"{k} {v:.2f}" for k, v in found.items()), flush=True)
    head = ["import", "contestant", "best s", "median s", "CPU s", "peak MiB", "their time / ours"]
    table = Table("Import in a new process, CPU", head)
    for (what, name), found in runs.items():
        middle = {key: statistics.median(one[key] for one in found) for key in found[0]}
        pairs = zip(found, runs[what, OURS], strict=True)
        ratio, low, high = interval([a["wall"] / b["wall"] for a, b in pairs])
        seconds = [min(one["wall"] for one in found), middle["wall"], middle["cpu"]]
        ends = [f"{middle['peak']:.0f}", f"{ratio:.2f} ({low:.2f} to {high:.2f})"]
        table.rows.append([what, name, *(f"{x:.2f}" for x in seconds), *ends])
        table.raw[f"{what}, {name}"] = found
    table.notes += [
        "whole processes, files in the page cache; CPU s: without what else the machine did",
        f"{settings.rounds} rounds in turn; ratio: of the same round, median and 95 % interval",
        versions(),
    ]
    table.show(settings, "cpu_import")


def versions() -> str:
    """Those of the peers."""
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in ("transformers", "x-transformers"))
