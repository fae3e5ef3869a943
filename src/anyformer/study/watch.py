"""A study followed from its folder: what changed, and a page of it served to this machine alone."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from anyformer.errors import AnyformerError, StudyError
from anyformer.study.gather import STUDY
from anyformer.study.report.figures import matplotlib
from anyformer.study.report.page import page
from anyformer.study.results import Results
from anyformer.study.run import opened
from anyformer.study.work import OUTCOME, PLAN, RUNS
from anyformer.train import log

HERE = "127.0.0.1"
NAMES = (HERE, "localhost")
EVERY = 3.0  # seconds between looks at the folder


def state(home: Path) -> str:
    """A hash that changes when any run of a study has something new."""
    runs = sorted((home / RUNS).glob("*")) if (home / RUNS).is_dir() else []
    files = [home / STUDY, home / PLAN]
    files += [run / name for run in runs for name in (log.METRICS, OUTCOME)]
    told = [(file.name, file.parent.name, *_seen(file)) for file in files]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _seen(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def over(found: Results) -> bool:
    """Whether every run has ended."""
    return all(o.status not in ("waiting", "running") for o in found.outcomes)


def follow(
    home: Path, heard: Callable[[Results], object], wait: threading.Event, every: float = 1.0
) -> None:
    """Hand on the results of a study whenever they change, until it is over or `wait` is set."""
    before = ""
    while True:
        now = state(home)
        if now != before:
            found, before = opened(home), now
            heard(found)
            if over(found):
                return
        if wait.wait(every):
            return


class Server(ThreadingHTTPServer):
    """Serves a study's report and its state, and nothing else; a thread makes both anew."""

    daemon_threads = True

    def __init__(self, home: str | os.PathLike[str], port: int = 0, every: float = EVERY):
        matplotlib()
        self.home, self.every = Path(home), every
        self.ending = threading.Event()
        self.told = ""
        self.made = self._made()
        self.maker = threading.Thread(target=self._remake, daemon=True)
        try:
            super().__init__((HERE, port), _Handler)
        except (OSError, OverflowError) as error:
            raise StudyError(
                f"port {port} can't be had ({error}): give another, or 0 for any that is free"
            ) from error
        self.maker.start()

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{HERE}:{self.server_port}/"

    def _made(self) -> tuple[bytes, bytes]:
        """The page and the state as they are sent."""
        self.told = state(self.home)
        found = opened(self.home)
        answer = json.dumps({"state": self.told, "over": over(found)})
        return page(found, state=self.told).encode(), answer.encode()

    def _remake(self) -> None:
        while not self.ending.wait(self.every):
            if state(self.home) == self.told:
                continue
            try:
                self.made = self._made()
            except (AnyformerError, OSError, ValueError, LookupError):
                self.told = (
                    ""  # a file was being written: the old page stays, and it is tried again
                )

    def server_close(self) -> None:
        """End the thread too."""
        self.ending.set()
        if self.maker.is_alive():
            self.maker.join()
        super().server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers for the page and the state alone, asked for by this machine's names."""

    server_version, sys_version = "anyformer", ""
    timeout = 10

    def do_GET(self) -> None:
        """Send the page or the state."""
        self._answer(True)

    def do_HEAD(self) -> None:
        """Say what would be sent."""
        self._answer(False)

    def _answer(self, body: bool) -> None:
        # a page of another site whose name was made to lead here asks by that name
        if self.headers.get("Host", "").rpartition(":")[0] not in NAMES:
            return self._send(HTTPStatus.FORBIDDEN, b"forbidden\n", "text/plain", body)
        assert isinstance(self.server, Server)
        text, told = self.server.made
        if self.path == "/":
            return self._send(HTTPStatus.OK, text, "text/html", body)
        if self.path == "/state":
            return self._send(HTTPStatus.OK, told, "application/json", body)
        return self._send(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain", body)

    def _send(self, status: HTTPStatus, content: bytes, kind: str, body: bool) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal shows the study."""
