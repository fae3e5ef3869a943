"""A run under torchrun in which one rank ends badly: `python -m … fragile OUT MODE`.

MODE is "kill" (SIGKILL to itself, the first time only) or "raise".
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import anyformer.train.run as runs
from anyformer.train import ranks
from tests.distributed.cases import parts, settings

WHERE = 3 * 8 + 5  # a row of the second rank in the fourth step


class Trap:
    """Samples of which one ends the process that reads it."""

    def __init__(self, inner: Any, mode: str):
        self.inner, self.mode = inner, mode
        self.size, self.fingerprint = inner.size, inner.fingerprint

    def __getitem__(self, index: int) -> Any:
        if index == WHERE and self.mode == "kill" and not ranks.restarted():
            os.kill(os.getpid(), signal.SIGKILL)
        if index == WHERE and self.mode == "raise":
            raise ValueError("row 29 is poison")
        return self.inner[index]


def main(out: str, mode: str) -> None:
    """Train as the case says, with a trap."""
    given = parts("gpt2")
    with ranks.start(timeout=60):
        train, rest = given.pop("samples")
        runs.train(out=out, settings=settings(), samples=(Trap(train, mode), rest), **given)


if __name__ == "__main__":
    main(*sys.argv[1:])
