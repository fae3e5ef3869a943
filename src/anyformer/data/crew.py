"""Texts to ids in several processes, in order: what comes out doesn't depend on their number.

A worker is a Python of its own, asked through pipes, so nothing of the caller's is imported or run
again there, whether it is a script, a notebook or a test. A worker that dies is an error, no wait.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anyformer.data import encode, worker
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import AnyformerError, DataError

THREADS = "TOKENIZERS_PARALLELISM"
START = "from anyformer.data.worker import work; work()"


class Ids(NamedTuple):
    """The ids of several texts behind each other."""

    ids: np.ndarray  # uint32
    lengths: np.ndarray  # of each text, in tokens
    segments: np.ndarray | None  # where segments begin, from the start of all
    counts: np.ndarray | None  # segments of each text


def job_of(tokenizer: Tokenizer, kind: str | None) -> worker.Job:
    """What a worker must know: the pipeline, the segments, and what is done to a text first."""
    loaded = tokenizer._loaded
    return worker.Job(loaded.pipeline, kind, encode.rewriter(loaded))


def ids_of(tokenizer: Tokenizer, raw: worker.Raw) -> Ids:
    """The ids as they are written; pieces that are no tokens of the vocabulary are unknown."""
    loaded = tokenizer._loaded
    ids = np.asarray(raw.ids).astype(np.uint32, copy=False)
    sizes = np.asarray(raw.sizes).astype(np.int64, copy=False)
    unknown = loaded.pipeline.token_to_id(loaded.roles.get("unk", ""))
    if unknown is not None:
        ids[ids >= loaded.size] = unknown
    if raw.parts is None:
        return Ids(ids, sizes, None, None)
    owner = np.repeat(np.arange(len(raw.parts)), raw.parts)
    lengths = np.bincount(owner, sizes, len(raw.parts)).astype(np.int64)
    solid = sizes > 0
    starts = (np.cumsum(sizes) - sizes)[solid]
    return Ids(ids, lengths, starts, np.bincount(owner[solid], minlength=len(raw.parts)))


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the tokenizers library from starting threads of its own."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


@contextmanager
def crew(tokenizer: Tokenizer, kind: str | None, workers: int) -> Iterator[Any]:
    """A function from batches of texts to their ids, in order; no workers: in this process."""
    job = job_of(tokenizer, kind)
    ready = lambda found: (ids_of(tokenizer, raw) for raw in found)
    if workers < 1:
        with one_thread():
            yield lambda batches: ready(worker.encoded(job, texts) for texts in batches)
        return
    hired: list[_Worker] = []
    pool = ThreadPoolExecutor(workers, "tokenize")
    try:
        hired += [_Worker(i) for i in range(workers)]  # they start while the job is packed
        packed = pickle.dumps(tuple(job), protocol=5)
        idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for each in hired:
            idle.put(each)
        ask = lambda texts: _asked(idle, packed, texts)
        yield lambda batches: ready(_ordered(pool, ask, batches, workers))
    finally:
        for each in hired:
            each.dismiss()
        pool.shutdown(cancel_futures=True)


def _asked(idle: queue.SimpleQueue[_Worker], packed: bytes, texts: list[str]) -> worker.Raw:
    one = idle.get()
    try:
        return one.ask(packed, texts)
    finally:
        idle.put(one)


def _ordered(
    pool: ThreadPoolExecutor,
    ask: Callable[[list[str]], worker.Raw],
    batches: Iterable[list[str]],
    workers: int,
) -> Iterator[worker.Raw]:
    """Results in the order of the batches, a few of which are under way at a time."""
    waiting: deque[Future[worker.Raw]] = deque()
    for texts in batches:
        waiting.append(pool.submit(ask, texts))
        if len(waiting) > 2 * workers:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Worker:
    """A process that is sent a job, then texts, and sends back ids."""

    def __init__(self, number: int) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._number, self._knows = number, False
        self._process = subprocess.Popen(  # nosec B603 # our own interpreter, our own words
            [sys.executable, "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, THREADS: "false", "PYTHONPATH": paths},
        )

    def ask(self, packed: bytes, texts: list[str]) -> worker.Raw:
        """The ids of texts; the packed job is sent before the first ones."""
        self._send(texts, b"" if self._knows else packed)
        self._knows = True
        assert self._process.stdout
        try:
            found = pickle.load(self._process.stdout)  # nosec B301 # a process of our own
        except (EOFError, pickle.UnpicklingError, OSError) as problem:
            raise self._died() from problem
        if isinstance(found, AnyformerError):
            raise found
        return worker.Raw(*found)

    def _send(self, texts: list[str], before: bytes) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(before)
            pickle.dump(texts, self._process.stdin, protocol=5)
            self._process.stdin.flush()
        except OSError as problem:
            raise self._died() from problem

    def _died(self) -> DataError:
        status = self._process.wait(10)
        return DataError(
            f"worker {self._number} of the tokenizer died with status {status} (-9: killed, often "
            "for want of memory): try fewer workers"
        )

    def dismiss(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe:
                    pipe.close()
            except OSError:
                pass  # what was still to be sent
