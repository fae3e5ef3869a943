"""Tests of kernels on the emulator: `TRITON_INTERPRET=0 python -m pytest -p tools.ptx.plugin FILE`.

Tests marked `compiled` then run as on a GPU, with its tiles, and so do all that compare kernels.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

from tools.ptx import launch

_running = ExitStack()
_launches: Counter[str] = Counter()
_instructions: Counter[str] = Counter()


def _told(name: str, counts: Counter[str]) -> None:
    _launches[name] += 1
    _instructions.update(counts)


def pytest_configure(config: pytest.Config) -> None:
    """From here on kernels are emulated."""
    _running.enter_context(launch.emulated(_told))
    config.add_cleanup(_running.close)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much was."""
    launches, taken = _launches.total(), _instructions.total()
    terminalreporter.write_line(f"emulated: {launches} launches, {taken} instructions")
