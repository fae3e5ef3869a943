"""`python -m tests.fuzz --minutes 10 [--only NAME]` fuzzes each target in turn, lists findings."""

from __future__ import annotations

import argparse
import logging
import os
import resource
import tempfile
import time
import traceback
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.targets import TARGETS, emptied

SECONDS, MIB = 20.0, 4096  # of work that an example may take, and that the process may grow to
HANGS = 120.0  # seconds of the clock, since others may share the processor
ROUND = 200  # examples


def fuzz(name: str, number: int, home: Path) -> str | None:
    """Examples of one target with a seed; what was found, or None."""
    target, draw = TARGETS[name]

    @seed(number)
    @settings(
        max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    @given(draw)
    def one(content: object) -> None:
        before, began = time.process_time(), time.monotonic()
        target(content, home)
        assert time.process_time() - before < SECONDS, "too slow"
        assert time.monotonic() - began < HANGS, "waits for something"

    try:
        one()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "".join(traceback.format_exception(error)[-6:])
    return None


def main() -> int:
    """Fuzz for a while; the number of findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", choices=TARGETS)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.WARNING)  # of records that are left out
    until, number, found, examples = time.monotonic() + 60 * args.minutes, args.seed, 0, 0
    names = [args.only] if args.only else list(TARGETS)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        while time.monotonic() < until:
            for name in names:
                told = fuzz(name, number, emptied(Path(folder, name)))
                examples += ROUND
                if told is not None:
                    found += 1
                    print(f"--- {name}, seed {number}\n{told}", flush=True)
            number += 1
        os.chdir("/")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{examples} examples, {found} findings, {most} MiB at most")
    return found + (most > MIB)


if __name__ == "__main__":
    raise SystemExit(main())
