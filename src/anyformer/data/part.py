"""A part of token shards that is read like the whole: what is trained on, what is held out."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Protocol

import numpy as np

from anyformer.errors import InputError


class Texts(Protocol):
    """Documents as ids: shards, or a part of them."""

    @property
    def tokens(self) -> int:
        """The number of tokens of all documents."""
        ...

    @property
    def documents(self) -> int:
        """The number of documents."""
        ...

    @property
    def segmented(self) -> str | None:
        """How documents were cut into segments, if they were."""
        ...

    @property
    def fingerprint(self) -> str:
        """A digest of all that is read."""
        ...

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each document."""
        ...

    def document(self, k: int) -> np.ndarray:
        """The ids of a document."""
        ...

    def segments(self, k: int) -> list[np.ndarray]:
        """The ids of a document, segment by segment."""
        ...

    def names(self, k: int) -> str | None:
        """The name of a document, where it has one."""
        ...

    def slice(self, start: int, stop: int) -> np.ndarray:
        """The ids from start to stop, of all documents behind each other."""
        ...


class Part:
    """The tokens from `start` to `stop` of texts; documents that a limit cuts are shorter."""

    def __init__(self, texts: Texts, start: int, stop: int):
        if not 0 <= start < stop <= texts.tokens:
            raise InputError(f"tokens {start} to {stop} of {texts.tokens} are no part of them")
        self.texts, self.start, self.stop = texts, start, stop

    @property
    def tokens(self) -> int:
        """The number of tokens of all documents."""
        return self.stop - self.start

    @property
    def documents(self) -> int:
        """The number of documents."""
        return self._last - self._first

    @property
    def segmented(self) -> str | None:
        """How documents were cut into segments, if they were."""
        return self.texts.segmented

    @property
    def fingerprint(self) -> str:
        """A digest of all that is read."""
        told = f"part {self.texts.fingerprint} {self.start} {self.stop}"
        return hashlib.sha256(told.encode()).hexdigest()

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.texts.lengths)

    @cached_property
    def _first(self) -> int:
        return int(np.searchsorted(self._ends, self.start, side="right"))

    @cached_property
    def _last(self) -> int:
        return int(np.searchsorted(self._ends, self.stop, side="left")) + 1

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each document."""
        return self._lengths

    @cached_property
    def _lengths(self) -> np.ndarray:
        ends = np.minimum(self._ends[self._first : self._last], self.stop)
        return np.diff(ends, prepend=self.start)

    def _inside(self, k: int) -> tuple[int, int]:
        """What is read of the texts' document of k: from where to where in it."""
        end = int(self._ends[self._first + k])
        begin = end - int(self.texts.lengths[self._first + k])
        return max(self.start - begin, 0), min(self.stop, end) - begin

    def document(self, k: int) -> np.ndarray:
        """The ids of a document."""
        first, last = self._inside(k)
        return self.texts.document(self._first + k)[first:last]

    def segments(self, k: int) -> list[np.ndarray]:
        """The ids of a document, segment by segment."""
        (first, last), at, found = self._inside(k), 0, list[np.ndarray]()
        for segment in self.texts.segments(self._first + k):
            kept = segment[max(first - at, 0) : max(last - at, 0)]
            found += [kept] if len(kept) else []
            at += len(segment)
        return found

    def names(self, k: int) -> str | None:
        """The name of a document, where it has one."""
        return self.texts.names(self._first + k)

    def slice(self, start: int, stop: int) -> np.ndarray:
        """The ids from start to stop, of all documents behind each other."""
        return self.texts.slice(self.start + start, self.start + stop)


def held_out(texts: Texts, share: float) -> tuple[Part, Part]:
    """Texts to train on, and the last share of them to validate on.

    The limit is put where a document begins, unless none does within a tenth of that share: then
    one is cut, as a corpus of a single document has to be.
    """
    size = round(texts.tokens * share)
    if not 0 < size < texts.tokens:
        raise InputError(
            f"a share of {share} of {texts.tokens} tokens can't be held out: give a larger text, "
            "or a share between 0 and 1"
        )
    wanted, ends = texts.tokens - size, np.cumsum(texts.lengths)
    near = int(ends[np.abs(ends - wanted).argmin()])
    limit = near if abs(near - wanted) <= size / 10 else wanted
    return Part(texts, 0, limit), Part(texts, limit, texts.tokens)
