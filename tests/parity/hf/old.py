"""transformers 4.35.2, which has what version 5 dropped: run in a process of its own.

It is installed on first use, without dependencies that are there already, into one folder under
`.oracles/` (see tests.parity.oracles). `run` gives it jobs: see tests/parity/hf/old_models.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import filelock
import pytest
from safetensors.torch import load_file, save_file

from tests.parity import oracles

NAME = "transformers-4.35.2"
REQUIREMENTS = (
    "transformers==4.35.2",
    "tokenizers==0.15.2",
    "huggingface_hub==0.20.3",
    "fsspec==2023.12.2",
    "requests==2.32.3",
    "urllib3==2.2.3",
    "idna==3.10",
    "charset-normalizer==3.4.0",
    "certifi==2024.8.30",
)
SCRIPT = Path(__file__).with_name("old_models.py")
SECONDS = 300


def run(jobs, folder):
    """Run jobs in the old version: name -> (job, calls of named tensors), to name -> tensors."""
    for name, (job, calls) in jobs.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "job.json").write_text(json.dumps(job))
        flat = {f"{i}.{key}": value for i, call in enumerate(calls) for key, value in call.items()}
        save_file(flat, folder / name / "calls.safetensors")
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(folder), *jobs]
    settings = os.environ | {"PYTHONPATH": str(_installed()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=settings)
    if done.returncode:
        pytest.fail(f"transformers 4.35.2 failed:\n{done.stderr[-3000:]}", pytrace=False)
    return {name: load_file(folder / name / "answers.safetensors") for name in jobs}


def _installed():
    """The folder of the old version, filled if it isn't there yet, whole or not at all."""
    folder = oracles._folder() / NAME
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{folder}.lock"):
        if folder.is_dir():
            return folder
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{NAME}.") as scratch:
            target = Path(scratch) / NAME
            if problem := oracles._pip_install(target, *REQUIREMENTS):
                pytest.fail(problem, pytrace=False)
            target.rename(folder)
    return folder
