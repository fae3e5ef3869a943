"""What every test gets: one thread under xdist, order, seeds, hypothesis profiles, gpu skips."""

import os
import random
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch

from anyformer.cli.processor import remedy

SEED = 0
FIRST = (  # what has tests of many seconds: none of them is left to one worker in the end
    "tests/distributed/",
    "tests/faults/test_f_ranks.py",
    "tests/train/",
    "tests/study/",
    "tests/cli/",
    "tests/golden/",
    "tests/parity/hf/test_relative_key.py",
    "tests/parity/hf/test_transfo_xl.py",
)

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores
    torch.set_num_threads(1)


if "PYTEST_XDIST_WORKER" not in os.environ and (needed := remedy()):  # workers get it from here
    os.environ.update([needed.split("=")])  # type: ignore[list-item]


if not torch.cuda.is_available():  # before anything imports Triton: its kernels run in Python
    os.environ.setdefault("TRITON_INTERPRET", "1")


class _TorchRandom:
    """Torch's generator as hypothesis wants to see one, so that every example starts alike."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


_TORCH_RANDOM = _TorchRandom()  # hypothesis keeps a weak reference only
hypothesis.register_random(_TORCH_RANDOM)

_COMMON = {
    "deadline": None,  # the first call of a kernel is slow
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile("ci", derandomize=True, max_examples=14, **_COMMON)
hypothesis.settings.register_profile("long", max_examples=1000, print_blob=True, **_COMMON)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Start every test from the same random state, in whatever order the tests run."""
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


@pytest.hookimpl(optionalhook=True)  # xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, a worker gets one long row of tests, so that it makes a file's fixtures once.

    One that is through takes over what another would do last; the long ones are FIRST.
    """
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first; no gpu tests where there is no CUDA device (`-ra` shows the reason)."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
    if torch.cuda.is_available():
        return
    why = {"gpu": "gpu: torch sees no CUDA device on this machine"}
    if os.environ.get("ANYFORMER_EMULATED") != "1":
        why["compiled"] = "compiled: neither a CUDA device nor the emulator (tools/ptx) is here"
    for item in items:
        for marker in filter(item.get_closest_marker, why):
            item.add_marker(pytest.mark.skip(reason=why[marker]))
