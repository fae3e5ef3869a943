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

from anyformer.data import encode, segment
from anyformer.data.library import guarded
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import AnyformerError, DataError

THREADS = "TOKENIZERS_PARALLELISM"
START = "from anyformer.data.crew import work; work()"


class Ids(NamedTuple):
    """The ids of several texts behind each other."""

    ids: np.ndarray  # uint32
    lengths: np.ndarray  # of each text, in tokens
    segments: np.ndarray | None  # where segments begin, from the start of all
    counts: np.ndarray | None  # segments of each text


def encoded(tokenizer: Tokenizer, texts: list[str], kind: str | None) -> Ids:
    """The ids of texts without special tokens; segments are cut first and tokenized apart."""
    if kind is None:
        found = _ids(tokenizer, texts)
        return Ids(_joined(found), np.array([len(ids) for ids in found], np.int64), None, None)
    parts = [segment.split(text, kind) for text in texts]
    found = _ids(tokenizer, [part for each in parts for part in each])
    sizes = np.array([len(ids) for ids in found], np.int64)
    owner = np.repeat(np.arange(len(texts)), [len(each) for each in parts])
    lengths = np.bincount(owner, sizes, len(texts)).astype(np.int64)
    solid = sizes > 0
    starts = (np.cumsum(sizes) - sizes)[solid]
    return Ids(_joined(found), lengths, starts, np.bincount(owner[solid], minlength=len(texts)))


def _ids(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    loaded = tokenizer._loaded
    if loaded.kind and loaded.kind.prepare:
        found = encode.encodings(loaded, list(texts), None, special=False)
        return [np.array(encode.ids_of(loaded, one), np.uint32) for one in found]
    with guarded("these texts can't be encoded", DataError):
        loaded.pipeline.no_truncation()
        many = loaded.pipeline.encode_batch_fast(texts, add_special_tokens=False)
        rows = [np.array(one.ids, np.uint32) for one in many]
    unknown = loaded.pipeline.token_to_id(loaded.roles.get("unk", ""))
    if unknown is not None:
        for row in rows:
            row[row >= loaded.size] = unknown
    return rows


def _joined(rows: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(rows) if rows else np.zeros(0, np.uint32)


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
    if workers < 1:
        with one_thread():
            yield lambda batches: (encoded(tokenizer, texts, kind) for texts in batches)
        return
    hired: list[_Worker] = []
    pool = ThreadPoolExecutor(workers, "tokenize")
    try:
        hired += [_Worker(i, tokenizer, kind) for i in range(workers)]
        idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in hired:
            idle.put(worker)
        yield lambda batches: _ordered(pool, lambda texts: _asked(idle, texts), batches, workers)
    finally:
        for worker in hired:
            worker.dismiss()
        pool.shutdown(cancel_futures=True)


def _asked(idle: queue.SimpleQueue[_Worker], texts: list[str]) -> Ids:
    worker = idle.get()
    try:
        return worker.ask(texts)
    finally:
        idle.put(worker)


def _ordered(
    pool: ThreadPoolExecutor,
    ask: Callable[[list[str]], Ids],
    batches: Iterable[list[str]],
    workers: int,
) -> Iterator[Ids]:
    """Results in the order of the batches, a few of which are under way at a time."""
    waiting: deque[Future[Ids]] = deque()
    for texts in batches:
        waiting.append(pool.submit(ask, texts))
        if len(waiting) > 2 * workers:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Worker:
    """A process that is sent texts and sends back ids."""

    def __init__(self, number: int, tokenizer: Tokenizer, kind: str | None) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._number = number
        self._process = subprocess.Popen(
            [sys.executable, "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, THREADS: "false", "PYTHONPATH": paths},
        )
        self._send((tokenizer, kind))

    def ask(self, texts: list[str]) -> Ids:
        """The ids of texts."""
        self._send(texts)
        assert self._process.stdout
        try:
            found = pickle.load(self._process.stdout)  # from a process of our own
        except (EOFError, pickle.UnpicklingError, OSError) as problem:
            raise self._died() from problem
        if isinstance(found, AnyformerError):
            raise found
        return Ids(*found)

    def _send(self, what: Any) -> None:
        assert self._process.stdin
        try:
            pickle.dump(what, self._process.stdin, protocol=5)
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


def work() -> None:
    """What a worker does: read batches from its input until there are none."""
    take, give = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    tokenizer, kind = pickle.load(take)
    while True:
        try:
            texts = pickle.load(take)
        except EOFError:
            return
        try:
            found: Any = tuple(encoded(tokenizer, texts, kind))
        except AnyformerError as problem:
            found = problem
        pickle.dump(found, give, protocol=5)
        give.flush()
