"""Texts to ids in bare arrays: the part of making shards that workers do.

A worker starts for every run, so this imports little: no numpy, of this package next to nothing.
"""

from __future__ import annotations

import pickle
import sys
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

from anyformer.data import segment
from anyformer.data.library import guarded, tokenizers
from anyformer.errors import AnyformerError, DataError


class Job(NamedTuple):
    """What is done with texts."""

    pipeline: tokenizers.Tokenizer
    segments: str | None  # the kind of segment that texts are cut into
    rewrite: Callable[[str], str] | None  # what some families do to a text first


class Raw(NamedTuple):
    """The ids of several texts behind each other, or of their segments, tokenized apart."""

    ids: array[int]
    sizes: array[int]  # of each text or segment, in tokens
    parts: list[int] | None  # segments of each text


def encoded(job: Job, texts: list[str]) -> Raw:
    """The ids of texts without special tokens."""
    parts = None
    if job.segments is not None:
        cut = [segment.split(text, job.segments) for text in texts]
        parts, texts = [len(each) for each in cut], [part for each in cut for part in each]
    if job.rewrite is not None:
        texts = [job.rewrite(text) for text in texts]
    ids, sizes = array("I"), array("q")
    with guarded("these texts can't be encoded", DataError):
        job.pipeline.no_truncation()
        for one in job.pipeline.encode_batch_fast(texts, add_special_tokens=False):
            found = one.ids
            ids.fromlist(found)  # at half the cost of an array of numpy's
            sizes.append(len(found))
    return Raw(ids, sizes, parts)


def work() -> None:
    """What a worker does: read its job, then batches from its input until there are none."""
    take, give = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    job = Job(*pickle.load(take))  # nosec B301 # from the process that started this one
    while True:
        try:
            texts = pickle.load(take)  # nosec B301 # the same
        except EOFError:
            return
        try:
            found: Any = tuple(encoded(job, texts))
        except AnyformerError as problem:
            found = problem
        pickle.dump(found, give, protocol=5)
        give.flush()
