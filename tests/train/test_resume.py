"""A run that was killed and went on is the run that wasn't, bit for bit."""

import re
import subprocess
import sys

import pytest

from tests.distributed.helping import ROOT, environment


def _assert_same_after(kills: int, *more: str) -> None:
    words = [sys.executable, "-m", "tests.faults.kills", "--count", str(kills), *more]
    done = subprocess.run(
        words, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sums = re.search(r"\*\*all\*\* \| \*\*(\d+)\*\* .* \*\*(\d+)\*\* \| \*\*(\d+)\*\*", done.stdout)
    assert sums and [int(n) for n in sums.groups()] == [kills] * 3, done.stdout


def test_a_killed_run_goes_on_bit_for_bit():
    _assert_same_after(2)


@pytest.mark.slow
def test_forty_kills():
    _assert_same_after(40, "--seed", "2")


@pytest.mark.slow
def test_kills_among_four_ranks():
    _assert_same_after(6, "--ranks", "4", "--seed", "3")
