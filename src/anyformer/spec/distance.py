"""Disentangled attention: vectors by distance that meet words in every score (arXiv:2006.03654).

The stack keeps one table of vectors, each attention maps them to keys and queries of its own.
"""

from __future__ import annotations

from anyformer.spec.node import Positive, Rate, node
from anyformer.spec.norm import Norm


@node
class Distances:
    """DeBERTa's table of vectors by distance, one for the whole stack (arXiv:2006.03654)."""

    reach: Positive  # distances from it on count as it
    buckets: Positive | None = None  # rows to each side, half exact, then logarithmic; None: exact
    norm: Norm | None = None  # of the table's rows

    @property
    def size(self) -> int:
        """Rows to each side of the middle."""
        return self.buckets or self.reach

    def rows(self, low: int, high: int) -> tuple[int, int]:
        """The first and the last row that distances k - q of low..high can fall into."""
        exact = self.size if self.buckets is None else self.buckets // 2
        span = lambda distance: distance if distance <= exact else self.size
        last = min(self.size + span(max(-low, 0)), 2 * self.size - 1)
        return self.size - span(max(high, 0)), last


@node
class Disentangled:
    """Scores of words with distances beside those of words with words; all share one scale."""

    c2p: bool = True  # queries with the keys of distances
    p2c: bool = True  # keys with the queries of distances
    shared: bool = False  # distances go through the maps of the words
    bias: bool = True  # of the own map to keys
    dropout: Rate = 0.0  # on the vectors of distances

    @property
    def terms(self) -> int:
        """Scores beside that of words with words."""
        return self.c2p + self.p2c
