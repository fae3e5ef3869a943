"""Tests of kernels on the emulator: `TRITON_INTERPRET=0 python -m pytest -p tools.ptx.plugin FILE`.

Tests marked `compiled` then run as on a GPU, with its tiles, and so do all that compare kernels.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tools.ptx import launch

_running = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    """From here on kernels are emulated."""
    _running.enter_context(launch.emulated())
    config.add_cleanup(_running.close)
