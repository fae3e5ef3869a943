"""Runs side by side in processes of this machine; one that dies takes no other with it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from anyformer.errors import StudyError
from anyformer.study.work import OUTCOME, RUNS, retry
from anyformer.train.run import write

START = "anyformer.study.work"
LOG = "log.txt"
Heard = Callable[[], object]  # called now and then while runs are under way


def cores() -> int:
    """Processors that this process may use."""
    here = os.sched_getaffinity(0) if "sched_getaffinity" in dir(os) else ()
    return len(here) or os.cpu_count() or 1


def usual_jobs(device: str) -> int:
    """Runs at once: one for each core, a few where they share a GPU."""
    return min(cores(), 4) if device == "cuda" else cores()


def local(home: Path, keys: Sequence[str], jobs: int, heard: Heard, every: float = 0.5) -> None:
    """Run all trials that are not over yet, so many at once; an interrupt lets each save first."""
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    todo = retry(home, keys)
    for key in todo:
        left.put(key)
    crew = [_Worker(home, max(cores() // jobs, 1)) for _ in range(min(jobs, len(todo)))]
    threads = [threading.Thread(target=worker.work, args=(left,), daemon=True) for worker in crew]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            next(t for t in threads if t.is_alive()).join(every)
            heard()
    except BaseException:
        for worker in crew:
            worker.stop()
        raise
    finally:
        for worker in crew:
            worker.close()
    heard()


class _Worker:
    """A process that runs trials one after another, and another one where it died."""

    def __init__(self, home: Path, threads: int):
        self.home, self.threads = home, threads
        self.process: subprocess.Popen[str] | None = None
        self.stopping = False

    def work(self, left: queue.SimpleQueue[str]) -> None:
        """Take keys until there are none."""
        while not self.stopping:
            try:
                key = left.get_nowait()
            except queue.Empty:
                return
            if not self._ask(key) and not self.stopping:
                self._died(key)

    def _ask(self, key: str) -> bool:
        """Have a trial run; whether the process lived to say how it ended."""
        process = self.process = self.process or self._started()
        assert process.stdin and process.stdout
        try:
            print(key, file=process.stdin, flush=True)
            return bool(process.stdout.readline())
        except OSError:
            return False

    def _started(self) -> subprocess.Popen[str]:
        root = str(Path(__file__).resolve().parents[2])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with (self.home / LOG).open("ab") as log:
            return subprocess.Popen(  # nosec B603 # our own interpreter, our own words
                [sys.executable, "-m", START, str(self.home)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # an interrupt of the terminal goes to us alone
                env={
                    **os.environ,
                    "PYTHONPATH": paths,
                    "OMP_NUM_THREADS": str(self.threads),
                    "OMP_WAIT_POLICY": "PASSIVE",
                    "TOKENIZERS_PARALLELISM": "false",
                },
            )

    def _died(self, key: str) -> None:
        """Keep that a run's process died, and go on with the others."""
        code = self.process.wait() if self.process else None
        self._hang_up()
        self.process = None
        reason = (
            f"its process died with status {code} (-9: killed, often for want of memory): see "
            f"{LOG}, try fewer jobs; the next start goes on with it"
        )
        _failed(self.home, key, reason)

    def stop(self) -> None:
        """Ask the process to save and end."""
        self.stopping = True
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Wait until the process has ended."""
        if self.process is None:
            return
        self._hang_up("stdin")
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._hang_up("stdout")

    def _hang_up(self, *ends: str) -> None:
        """Close the pipes to the process, or one of them."""
        process = self.process
        pipes = {"stdin": process.stdin, "stdout": process.stdout} if process else {}
        for name, pipe in pipes.items():
            if pipe is not None and (not ends or name in ends):
                with suppress(OSError):  # what was not sent goes nowhere
                    pipe.close()


def _failed(home: Path, key: str, reason: str) -> None:
    folder = home / RUNS / key
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / OUTCOME, json.dumps({"status": "failed", "reason": reason}))


def over_ray(home: Path, keys: Sequence[str], jobs: int, heard: Heard, every: float = 0.5) -> None:
    """The same over a Ray cluster whose machines all see the study's folder."""
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise StudyError("ray is not installed: pip install 'anyformer[ray]'") from error
    from anyformer.study.work import do

    ray.init(ignore_reinit_error=True, log_to_driver=False)
    gpus = ray.cluster_resources().get("GPU", 0)
    needs = {"num_gpus": gpus / jobs} if gpus else {"num_cpus": 1}
    task = ray.remote(max_retries=1, **needs)(do)
    asked = {task.remote(home.resolve(), key): key for key in retry(home, keys)}
    waiting = list(asked)
    while waiting:
        ended, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=every)
        for one in ended:
            try:
                ray.get(one)
            except ray.exceptions.RayError as error:
                _failed(home, asked[one], f"{error}; the next start goes on with it")
        heard()


ENGINES = {"local": local, "ray": over_ray}
