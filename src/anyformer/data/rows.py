"""Rows of equal length, cut out of all documents without a gap: no padding, nothing left out.

Each epoch begins to cut at another token and reads its rows in another order. Neighbours in a row
are told apart by number, so that attention and labels need not cross from one to the next.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

import numpy as np

from anyformer.data.order import mixed, place
from anyformer.data.part import Texts
from anyformer.data.samples import Sample
from anyformer.errors import InputError


class Rows:
    """Packed rows: `ids` (N,) and `documents` (N,), the number of each token's within the row."""

    def __init__(self, shards: Texts, length: int, seed: int = 0, shuffle: bool = True):
        if shards.tokens < length:
            raise InputError(
                f"the data has {shards.tokens} tokens, and one row needs {length}: "
                "give more text, or a shorter length"
            )
        self.shards, self.length, self.seed, self.shuffle = shards, length, seed, shuffle

    @property
    def size(self) -> int:
        """The rows of one epoch."""
        return self.shards.tokens // self.length

    @property
    def fingerprint(self) -> str:
        """A digest of the tokens and of how they are cut."""
        told = f"rows {self.shards.fingerprint} {self.length} {self.seed} {self.shuffle}"
        return hashlib.sha256(told.encode()).hexdigest()

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.shards.lengths)

    def __getitem__(self, index: int) -> Sample:
        """The row at an index from 0 on."""
        epoch, row = place(index, self.size, self.seed, self.shuffle)
        total = self.shards.tokens
        phase = mixed(self.seed, epoch, 1) % total if self.shuffle else 0
        start = (phase + row * self.length) % total
        stop = min(start + self.length, total)
        ids, documents = self.shards.slice(start, stop), self._documents(start, stop)
        if stop - start < self.length:  # around the end, to the first document
            rest = self.length - (stop - start)
            ids = np.concatenate([ids, self.shards.slice(0, rest)])
            documents = np.concatenate([documents, self._documents(0, rest) + documents[-1] + 1])
        return {"ids": ids, "documents": documents}

    def _documents(self, start: int, stop: int) -> np.ndarray:
        """The documents of tokens, counted from the first one's; empty ones don't count."""
        first = self._ends.searchsorted(start, side="right")
        if stop <= self._ends[first]:  # one document, as mostly where they are long
            return np.zeros(stop - start, np.int64)
        found = np.searchsorted(self._ends, np.arange(start, stop), side="right")
        return np.cumsum(np.diff(found, prepend=found[:1]) > 0)
