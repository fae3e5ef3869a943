"""Samples: examples in a random order that a seed fixes; an index is all that a position needs.

Every class of samples answers `samples[index]` for any index from 0 on: after `size` samples the
next epoch begins, in another order. So a run's place in its data is one integer, and any number
of workers or ranks can work out any part of it alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np

from anyformer.data.order import generator, place
from anyformer.data.part import Texts
from anyformer.errors import InputError

Sample = dict[str, Any]
BLOCK = 4096  # samples in which a mixture's shares are exact


class Samples(Protocol):
    """A source of samples by index, unbounded; the same for the same seed."""

    @property
    def size(self) -> int:
        """The number of samples of one epoch."""
        ...

    @property
    def fingerprint(self) -> str:
        """A digest of what is read and how; a changed one means other samples."""
        ...

    def __getitem__(self, index: int) -> Sample:
        """The sample at an index from 0 on."""
        ...


class Documents:
    """Whole documents: `ids` (n,), its `segments` where they are stored, and its `place`."""

    def __init__(self, shards: Texts, seed: int = 0, shuffle: bool = True):
        if not shards.documents:
            raise InputError("the data has no document")
        self.shards, self.seed, self.shuffle = shards, seed, shuffle

    @property
    def size(self) -> int:
        """The number of documents."""
        return self.shards.documents

    @property
    def fingerprint(self) -> str:
        """A digest of the documents and their order."""
        return _digest("documents", self.shards.fingerprint, self.seed, self.shuffle)

    def __getitem__(self, index: int) -> Sample:
        """The document at an index from 0 on."""
        return self.at(place(index, self.size, self.seed, self.shuffle)[1])

    def at(self, place: int) -> Sample:
        """The document at a place of the stored order."""
        segments = self.shards.segments(place) if self.shards.segmented else []
        name = self.shards.names(place)
        return {"ids": self.shards.document(place), "segments": segments, "place": place} | (
            {} if name is None else {"name": name}
        )


class Records:
    """Rows of a table, as those of a fine-tuning set."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], seed: int = 0, shuffle: bool = True):
        if not rows:
            raise InputError("the data has no record")
        self.rows, self.seed, self.shuffle = rows, seed, shuffle

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.rows)

    @property
    def fingerprint(self) -> str:
        """A digest of the records and their order."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return _digest("records", self.seed, self.shuffle, *map(_flat, self.rows))

    def __getitem__(self, index: int) -> Sample:
        """The record at an index from 0 on."""
        return dict(self.rows[place(index, self.size, self.seed, self.shuffle)[1]])


class Mixture:
    """Samples of several sources, in shares that hold exactly over every 4,096 of them."""

    def __init__(self, parts: Sequence[tuple[Samples, float]], seed: int = 0):
        weights = np.array([weight for _, weight in parts], float)
        if not parts or not np.isfinite(weights).all() or weights.min() <= 0:
            raise InputError("a mixture needs parts, each with a weight above zero")
        self.parts = [samples for samples, _ in parts]
        self.seed, self.shares = seed, _shares(weights / weights.sum())

    @property
    def size(self) -> int:
        """The samples after which every part has been read whole at least once."""
        return max(-(-p.size * BLOCK // n) for p, n in zip(self.parts, self.shares, strict=True))

    @property
    def fingerprint(self) -> str:
        """A digest of the parts and their shares."""
        return _digest("mixture", self.seed, self.shares, *(p.fingerprint for p in self.parts))

    def source(self, index: int) -> tuple[int, int]:
        """Which part an index reads, and at which index of it."""
        block, within = divmod(index, BLOCK)
        parts, counts = _block(tuple(self.shares), self.seed, block)
        part = int(parts[within])
        return part, block * self.shares[part] + int(counts[within])

    def __getitem__(self, index: int) -> Sample:
        """The sample at an index from 0 on; `part` says which source it is of."""
        part, at = self.source(index)
        return {**self.parts[part][at], "part": part}


class Slice:
    """Some of the samples of an epoch of others: a part held out, or a smaller set."""

    def __init__(self, samples: Samples, start: int, stop: int):
        if not 0 <= start < stop <= samples.size:
            raise InputError(f"samples {start} to {stop} of {samples.size} are none")
        self.samples, self.start, self.stop = samples, start, stop

    @property
    def size(self) -> int:
        """The number of samples."""
        return self.stop - self.start

    @property
    def fingerprint(self) -> str:
        """A digest of the samples and of which are read."""
        return _digest("slice", self.samples.fingerprint, self.start, self.stop)

    def __getitem__(self, index: int) -> Sample:
        """The sample at an index from 0 on; the same in every epoch."""
        return self.samples[self.start + index % self.size]


def _shares(weights: np.ndarray) -> list[int]:
    """Whole numbers that add up to BLOCK, in the ratio of weights and at least one each."""
    exact = weights * BLOCK
    found = np.maximum(np.floor(exact), 1).astype(int)
    for at in np.argsort(found - exact)[: max(BLOCK - found.sum(), 0)]:
        found[at] += 1
    found[found.argmax()] += BLOCK - found.sum()
    return found.tolist()


@lru_cache(8)
def _block(shares: tuple[int, ...], seed: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """The part of each place of a block, and how many of that part stand before it."""
    parts = generator(seed, block).permutation(np.repeat(np.arange(len(shares)), shares))
    counts = np.zeros_like(parts)
    for part in range(len(shares)):
        counts[parts == part] = np.arange(shares[part])
    return parts, counts


def _digest(*told: object) -> str:
    whole = hashlib.sha256()
    for item in told:
        whole.update(repr(item).encode() + b"\0")
    return whole.hexdigest()


def _flat(record: Mapping[str, Any]) -> list[tuple[str, object]]:
    """A record as something that prints whole."""
    return [
        (k, (v.shape, str(v.dtype), hashlib.sha256(v.tobytes()).hexdigest()))
        if isinstance(v, np.ndarray)
        else (k, v)
        for k, v in sorted(record.items())
    ]
