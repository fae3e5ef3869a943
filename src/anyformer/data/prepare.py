"""From texts to token shards: in parallel, in constant memory, whole or not at all."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anyformer.data import segment, sources
from anyformer.data.crew import Ids, crew
from anyformer.data.shard_writer import SHARD, Writer, replacing
from anyformer.data.shards import Shards, tokenizer_digest
from anyformer.data.sources import Piece, Source
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import DataError, known_or_raise

BATCH = 1 << 18  # characters that a worker is given at a time
MANY = 2048  # documents of a batch at most
SMALL = 1 << 22  # bytes of input below which workers would take longer to start than to work
Kept = tuple[bool, str | None]  # of a piece whose text is with a worker: last, name
Progress = Callable[[int, int | None], object]  # bytes read, and of all where that is known


def prepare(
    source: Any,
    tokenizer: Tokenizer,
    folder: str | os.PathLike[str],
    workers: int | None = None,
    segments: str | None = None,
    progress: Progress | None = None,
    end: str | None = None,
    **options: Any,
) -> Shards:
    """Tokenize a source (see sources.source) into a folder of shards.

    `workers` are processes (None: one a core, 0: none but this one); the shards are the same for
    any number. `segments` keeps where lines, sentences or paragraphs begin. `end` is the role of a
    token that ends every document, as "eos". Other options are those of sources.Options, and
    overwrite=True, and shard=, the tokens after which the next document opens another shard.
    """
    shard, overwrite = int(options.pop("shard", SHARD)), bool(options.pop("overwrite", False))
    found = sources.source(source, **options)
    if segments is not None:
        known_or_raise(segments, segment.KINDS, "kind of segment", DataError)
    last = np.array(tokenizer.need(end) if end else [], np.uint32)
    target, size = Path(folder), found.size
    with replacing(target, overwrite) as work:
        writer = Writer(work, len(tokenizer), segments is not None, found.named, shard)
        try:
            with crew(tokenizer, segments, _workers(workers, size)) as encode:
                _fill(writer, found.pieces(_watch(progress, size)), encode, last)
            made = writer.finish(
                {
                    "tokenizer": tokenizer_digest(tokenizer),
                    "segments": segments,
                    "end": end,
                    "source": found.about(),
                }
            )
        finally:
            writer.drop()
        if not made["tokens"]:
            raise DataError(f"there is no text in {_told(found)}: nothing was written; give some")
    return Shards.open(target)


def _fill(
    writer: Writer,
    pieces: Iterable[Piece],
    encode: Callable[[Iterable[list[str]]], Iterator[Ids]],
    last: np.ndarray,
) -> None:
    sent: deque[list[Kept]] = deque()
    for found in encode(_texts(pieces, sent)):
        _write(writer, sent.popleft(), found, last)


def _texts(pieces: Iterable[Piece], sent: deque[list[Kept]]) -> Iterator[list[str]]:
    """The texts of batches; what belongs to them is kept until their ids come back."""
    for batch in _batches(pieces):
        sent.append([(piece.last, piece.name) for piece in batch])
        yield [piece.text for piece in batch]


def _batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece.text)
        if size >= BATCH or len(batch) >= MANY:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write(writer: Writer, batch: list[Kept], found: Ids, last: np.ndarray) -> None:
    if all(done for done, _ in batch) and writer.add_whole(*_ended(found, last)):
        return
    at = mark = 0
    for i, (done, name) in enumerate(batch):
        length = int(found.lengths[i])
        starts = None
        if found.segments is not None and found.counts is not None:
            many = int(found.counts[i])
            starts = found.segments[mark : mark + many] - at
            mark += many
        writer.add(found.ids[at : at + length], starts)
        at += length
        if done and writer.started:
            writer.add(last)
            writer.end(name)


def _ended(found: Ids, last: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Ids, lengths and segments of the documents that are not empty, each with its end token."""
    lengths = found.lengths[found.lengths > 0]
    if not len(last):
        return found.ids, lengths, found.segments
    ends = np.cumsum(lengths)
    starts = found.segments
    if starts is not None:
        starts = starts + np.searchsorted(ends, starts, "right")
    return np.insert(found.ids, ends, last[0]), lengths + 1, starts


def _workers(asked: int | None, size: int | None) -> int:
    if asked is not None:
        if asked < 0:
            raise DataError(f"workers={asked}: give 0 for none, or how many processes to start")
        return asked
    if size is not None and size < SMALL:
        return 0
    cores = (
        os.sched_getaffinity(0) if "sched_getaffinity" in dir(os) else range(os.cpu_count() or 1)
    )
    return len(cores)


def _watch(progress: Progress | None, size: int | None) -> Callable[[int], object] | None:
    if progress is None:
        return None
    done = 0

    def heard(more: int) -> None:
        nonlocal done
        done += more
        progress(done, size)

    return heard


def _told(found: Source) -> str:
    files = [str(file["path"]) for file in found.files]
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    left = f" ({found.bad} records were left out as bad)" if found.bad else ""
    return f"{', '.join(files[:3]) or 'what was given'}{more}{left}"
