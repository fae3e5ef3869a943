"""Starting crews and torchrun from a test, and comparing the runs they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """One thread for each process, and no ranks of somebody else."""
    foreign = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
    kept = {k: v for k, v in os.environ.items() if k not in foreign}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def assert_done(folder: Path, jobs: list[dict[str, Any]], name: str = "jobs") -> None:
    """Do jobs of tests.distributed.crew; every rank of each must end well."""
    file = folder / f"{name}.json"
    file.write_text(json.dumps(jobs))
    command = [sys.executable, "-m", "tests.distributed.crew", str(file)]
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for job, found in zip(
        jobs, json.loads(file.with_suffix(".done.json").read_text()), strict=True
    ):
        errors = [
            p.read_text() for p in Path(job["out"]).parent.glob(f"{Path(job['out']).name}.e*")
        ]
        assert not any(found["codes"]), f"{job}: {found['codes']}\n{errors[0] if errors else ''}"


def torchrun(processes: int, *words: str, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    """What torchrun says of processes that run a module."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), "--max-restarts", str(restarts), "-m", *words]
    return subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=300
    )


def numbers(folder: Path) -> list[dict[str, float]]:
    """The losses, metrics and norms of a run, in order."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    told = lambda r: {k: v for k, v in r.items() if "perplexity" not in k}
    return [told(json.loads(line)) for line in lines]


def weights(folder: Path) -> dict[str, Any]:
    """The final weights of a run."""
    return load_file(folder / "model" / "model.safetensors")


def differences(one: Path, two: Path) -> tuple[float, float]:
    """The largest difference of a number and of a weight between two runs."""
    a, b = numbers(one), numbers(two)
    assert [sorted(x) for x in a] == [sorted(x) for x in b]
    logged = max(abs(x[k] - y[k]) for x, y in zip(a, b, strict=True) for k in x)
    p, q = weights(one), weights(two)
    assert p.keys() == q.keys()
    return logged, max((p[k] - q[k]).abs().max().item() for k in p)
