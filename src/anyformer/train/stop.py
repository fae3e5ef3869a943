"""Signals: the first one asks a run to stop after its step, the second one stops it at once."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Stop:
    """Listens for SIGINT and SIGTERM while it is entered; `code` is the exit status asked for."""

    def __init__(self) -> None:
        self.code = 0
        self.old: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self.old = {s: signal.signal(s, self._heard) for s in CODES}
        return self

    def __exit__(self, *_: object) -> None:
        for which, handler in self.old.items():
            signal.signal(which, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        which = signal.Signals(number)
        if self.code and which is signal.SIGINT:
            self.__exit__()
            raise KeyboardInterrupt
        self.code = CODES[which]
        print(f"\n{which.name}: finishing this step and saving", file=sys.stderr, flush=True)
