"""Masks: who sees whom, as small functions of (b, h, q, k) that compose with & and |.

b and h are indices of batch and head, q and k positions of query and key. A mask is called with
index tensors that broadcast, or with scalars by FlexAttention, and answers True where k is seen.
`span` bounds the keys that a run of queries can see, so that nothing beyond them is computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

Index = Tensor


@dataclass(frozen=True, eq=False)
class Mask(ABC):
    """What every mask has; abstract. Masks without tensors compare by value, others by identity."""

    @property
    def total(self) -> bool:
        """Whether every query surely sees a key."""
        return False

    @abstractmethod
    def __call__(self, b: Index, h: Index, q: Index, k: Index) -> Tensor:
        """True where query q sees key k."""

    def span(self, first: int, last: int, keys: int) -> tuple[int, int]:
        """The keys [low, high) that queries first..last can see at most."""
        del first, last
        return 0, keys

    def __and__(self, other: Mask) -> Mask:
        return And(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other)


@dataclass(frozen=True)
class Causal(Mask):
    """No key after the query."""

    @property
    def total(self) -> bool:
        """A query sees itself."""
        return True

    def __call__(self, b: Index, h: Index, q: Index, k: Index) -> Tensor:
        """k <= q."""
        return k <= q

    def span(self, first: int, last: int, keys: int) -> tuple[int, int]:
        """Up to the last query."""
        return 0, min(keys, last + 1)


@dataclass(frozen=True)
class Window(Mask):
    """Distances below width, on both sides."""

    width: int

    @property
    def total(self) -> bool:
        """A query sees itself."""
        return True

    def __call__(self, b: Index, h: Index, q: Index, k: Index) -> Tensor:
        """|q - k| < width."""
        return ((q - k) < self.width) & ((k - q) < self.width)

    def span(self, first: int, last: int, keys: int) -> tuple[int, int]:
        """The window of the run."""
        return max(0, first - self.width + 1), min(keys, last + self.width)


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Real keys only: keep is (B, K) by position.

    With `queries` the queries are the same sequence: those that are padding get zeros. `right`
    says that every row is real tokens first and padding after them, `sure` that no row is empty.
    """

    keep: Tensor
    queries: bool = False
    right: bool = False
    sure: bool = False
    made: dict[tuple, Tensor] = field(default_factory=dict, repr=False)

    @property
    def total(self) -> bool:
        """Where it was said."""
        return self.sure

    def __call__(self, b: Index, h: Index, q: Index, k: Index) -> Tensor:
        """keep[k]."""
        return self.keep[b if self.keep.shape[0] > 1 else 0 * b, k]

    def added(self, dtype: torch.dtype, lead: int) -> Tensor:
        """What it adds to scores, (B, 1, 1, lead + K): 0 where seen, else -inf; made once."""
        if (dtype, lead) not in self.made:
            seen = F.pad(self.keep, (lead, 0), value=True) if lead else self.keep
            bias = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
            self.made[dtype, lead] = bias.masked_fill_(~seen, float("-inf"))[:, None, None]
        return self.made[dtype, lead]


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """Packed rows: a query sees keys of its own document; ids is (B, K)."""

    ids: Tensor

    @property
    def total(self) -> bool:
        """A query is in its own document."""
        return True

    def __call__(self, b: Index, h: Index, q: Index, k: Index) -> Tensor:
        """ids[q] == ids[k]."""
        return self.ids[b, q] == self.ids[b, k]


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """Keys of the row's prefix; with | Causal() a prefix-LM. lengths is (B,)."""

    lengths: Tensor

    def __call__(self, b: Index, h: Index, q: Index, k: Index) -> Tensor:
        """K < lengths[b]."""
        return k < self.lengths[b] + 0 * q


@dataclass(frozen=True)
class Blocks(Mask):
    """BigBird without chance: `count` blocks of `size`, near ones and both ends (2007.14062).

    A query sees the `near` blocks around its own, and the first and last `ends` blocks; those of
    the ends see everything.
    """

    size: int
    count: int
    near: int = 3
    ends: int = 1

    @property
    def total(self) -> bool:
        """A query sees its own block."""
        return True

    def __call__(self, b: Index, h: Index, q: Index, k: Index) -> Tensor:
        """Whether the blocks of q and k are near, or one of them at an end."""
        i, j = q // self.size, k // self.size
        last = self.count - self.ends
        near = ((i - j) <= self.near // 2) & ((j - i) <= self.near // 2)
        return near | (i < self.ends) | (j < self.ends) | (i >= last) | (j >= last)

    def span(self, first: int, last: int, keys: int) -> tuple[int, int]:
        """The near blocks of the run; everything where there are ends, which lie far apart."""
        if self.ends:
            return 0, keys
        low, high = first // self.size - self.near // 2, last // self.size + self.near // 2 + 1
        return max(0, low * self.size), min(keys, high * self.size)


@dataclass(frozen=True, eq=False)
class Drawn(Mask):
    """Blocks of `size` that a block of queries sees by chance: ids is (H, blocks, R), -1: none."""

    size: int
    ids: Tensor

    def __call__(self, b: Index, h: Index, q: Index, k: Index) -> Tensor:
        """Whether the block of k is among those of q's."""
        return self.times(h, q, k) > 0

    def times(self, h: Index, q: Index, k: Index) -> Tensor:
        """How often it is among them."""
        i, j = q // self.size, k // self.size
        found = (self.ids[h, i, 0] == j).int()
        for draw in range(1, self.ids.shape[2]):
            found = found + (self.ids[h, i, draw] == j).int()
        return found


@dataclass(frozen=True)
class And(Mask):
    """Seen by both."""

    left: Mask
    right: Mask

    @property
    def total(self) -> bool:
        """Causal and window hold of the query itself, so both together do."""
        return self.left.total and self.right.total

    def __call__(self, b: Index, h: Index, q: Index, k: Index) -> Tensor:
        """Both."""
        return self.left(b, h, q, k) & self.right(b, h, q, k)

    def span(self, first: int, last: int, keys: int) -> tuple[int, int]:
        """What both allow."""
        low, high = self.left.span(first, last, keys)
        low2, high2 = self.right.span(first, last, keys)
        return max(low, low2), max(min(high, high2), max(low, low2))


@dataclass(frozen=True)
class Or(Mask):
    """Seen by either."""

    left: Mask
    right: Mask

    @property
    def total(self) -> bool:
        """One is enough."""
        return self.left.total or self.right.total

    def __call__(self, b: Index, h: Index, q: Index, k: Index) -> Tensor:
        """Either."""
        return self.left(b, h, q, k) | self.right(b, h, q, k)

    def span(self, first: int, last: int, keys: int) -> tuple[int, int]:
        """What either allows."""
        low, high = self.left.span(first, last, keys)
        low2, high2 = self.right.span(first, last, keys)
        return min(low, low2), max(high, high2)


def parts(mask: Mask | None) -> list[Mask]:
    """The masks that & joins; [] for None."""
    if mask is None:
        return []
    return [*parts(mask.left), *parts(mask.right)] if isinstance(mask, And) else [mask]


def both(masks: list[Mask]) -> Mask | None:
    """All masks joined by &; None for none."""
    joined: Mask | None = None
    for mask in masks:
        joined = mask if joined is None else joined & mask
    return joined
